"""Reports for people and tools: terminal tables, JSON and other forms."""

from parity.report.channels import channels_markdown
from parity.report.coverage import print_coverage
from parity.report.maps import map_line
from parity.report.records import as_json, case_record, summarise, write_json, write_text
from parity.report.structure import print_sections, sections_record
from parity.report.summary import print_summaries, summaries_markdown, summaries_record
from parity.report.table import (
    Progress,
    print_details,
    print_findings,
    print_placements,
    print_proofs,
    print_table,
    print_tracebacks,
)

__all__ = [
    "Progress",
    "as_json",
    "case_record",
    "channels_markdown",
    "map_line",
    "print_coverage",
    "print_details",
    "print_findings",
    "print_placements",
    "print_proofs",
    "print_sections",
    "print_summaries",
    "print_table",
    "print_tracebacks",
    "sections_record",
    "summaries_markdown",
    "summaries_record",
    "summarise",
    "write_json",
    "write_text",
]
