"""Trace files to tables: find, decompress, decode, recover."""
