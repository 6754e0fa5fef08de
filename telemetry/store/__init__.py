"""The store: one DuckDB file with one owner, one writer, group commit; the only package that imports duckdb."""
