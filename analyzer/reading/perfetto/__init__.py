"""Reads traces in the binary format of Perfetto, which PyTorch 2.15 writes (`export_chrome_trace("x.pftrace")`)."""
