"""Packages of the wheel: pyproject.toml has all the rest, and cannot express that a wheel differs from the checkout.

In a checkout the twins are packages of their own. In a wheel they lie in ``parity/_twins``, where no project's
imports find them until one of our pairs asks: decision 0011.
"""

import sys

from setuptools import find_packages, setup

TWINS = ("models_linen", "models_nnx")
HOME = "parity._twins"
DATA = {"models_nnx.shared": ["text/*.txt"]}

ENGINE = find_packages(include=["parity*"])
MODELS = find_packages(include=[f"{name}*" for name in TWINS])
AS_THEY_LIE = {"editable_wheel", "develop"} & set(sys.argv)
PREFIX = "" if AS_THEY_LIE else f"{HOME}."

setup(
    include_package_data=False,
    packages=[*ENGINE, *(f"{PREFIX}{name}" for name in MODELS)],
    package_dir={} if AS_THEY_LIE else {f"{HOME}.{name}": name for name in TWINS},
    package_data={
        "parity.matrix": ["core.json", "covering.json"],
        "parity.report.formats": ["page/*"],
        **{f"{PREFIX}{name}": files for name, files in DATA.items()},
    },
)
