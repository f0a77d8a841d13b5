"""The workflow and the hook in docs/gate.md: valid YAML, identical to this repository's, with existing options."""

import re
import shlex
from pathlib import Path

import pytest
import typer
import yaml

from parity.cli import app

REPO = Path(__file__).parents[3]
SHOWN = re.findall(r"```yaml\n(.*?)```", (REPO / "docs" / "gate.md").read_text(), re.DOTALL)


def commands(node):
    """Yields the parity commands of a workflow or a hook."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name in ("run", "entry"):
                yield from (line.strip() for line in value.split("||")[:1] if "parity " in line[:8])
            else:
                yield from commands(value)
    elif isinstance(node, list):
        for each in node:
            yield from commands(each)


def test_the_workflow_shown_is_the_one_in_use():
    workflow, hooks = (yaml.safe_load(text) for text in SHOWN)
    left = yaml.safe_load((REPO / ".github" / "workflows" / "gate.yml").read_text())
    for job in left["jobs"].values():
        for step in job["steps"]:
            step.update({"run": "pip install -e . linen-nnx-parity"} if "pip" in step.get("run", "") else {})
    assert left == workflow
    used = yaml.safe_load((REPO / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert hooks["repos"][0]["hooks"][0] in used


@pytest.mark.parametrize("text", SHOWN, ids=["workflow", "hook"])
def test_every_option_shown_exists(text):
    found = [shlex.split(re.sub(r"\$\{\{.*?\}\}", "1", line)) for line in commands(yaml.safe_load(text))]
    assert found
    known = typer.main.get_command(app).commands  # pyright: ignore[reportAttributeAccessIssue]
    for _, name, *words in found:
        options = {option for each in known[name].params for option in each.opts}
        assert {word for word in words if word.startswith("--")} <= options, (name, words)
