"""Language models and tokenisers that count their bytes."""
