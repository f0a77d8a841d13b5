"""Reports for people and tools: terminal tables and other forms of the record, `parity.run.record.Report`."""
