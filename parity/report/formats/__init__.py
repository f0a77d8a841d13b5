"""Forms of one record for other readers: one file a form, one registry.

A form takes a report as `parity.report.reading` returns it, and earlier ones to compare with; it gives text.
"""

from collections.abc import Mapping

from parity.report.formats import annotations, html, junit, markdown
from parity.report.formats.form import Form

__all__ = ["FORMS", "Form"]

FORMS: Mapping[str, Form] = {form.FORM.name: form.FORM for form in (html, junit, markdown, annotations)}
"""Every form by name; the name is also its option."""
