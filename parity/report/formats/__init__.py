"""Forms of a report besides JSON: one file per form, and a registry.

A form converts a report from `parity.report.reading`, and earlier ones for comparison, to text.
"""

from collections.abc import Mapping

from parity.report.formats import annotations, html, junit, markdown
from parity.report.formats.form import Form

__all__ = ["FORMS", "Form"]

FORMS: Mapping[str, Form] = {form.FORM.name: form.FORM for form in (html, junit, markdown, annotations)}
"""Every form by name; the name is also its option."""
