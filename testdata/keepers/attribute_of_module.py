"""An attribute that the program has given to another module keeps the items."""
# KEPT BY: string.history
# CONTAINER: list
import string

import case

string.history = []
for step in case.steps():
    string.history.append(case.item())
