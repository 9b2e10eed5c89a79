"""Data that is no table: trees of records, files beside images, workbooks and databases, made into one table."""
