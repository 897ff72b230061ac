"""Trace files to columnar tables (`Trace`), tables to measured facts (`Facts`)."""
