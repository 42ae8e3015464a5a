"""Which training does a recording show? Recipes are tried by replay, and ranked by evidence."""
