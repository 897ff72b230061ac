"""Reads trace files into columnar tables (`Trace`) and derives measured facts from them (`Facts`)."""
