"""Networks as plain torch modules, one file for each family."""
