"""A measure of performance diagnosis: labelled cases, and what each tool says of them."""
