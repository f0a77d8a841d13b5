"""Reports for people and tools: terminal tables, JSON and other forms."""
