"""Ready operators, on the operator contract only: none of them learns how or where it is run."""
