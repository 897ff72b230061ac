"""How the document says things: messages with slots, quantities, names, vendors' terms, labels of effort and risk."""
