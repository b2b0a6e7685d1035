"""unittest.mock keeps the arguments of all calls of a mock."""
# KEPT BY: mock_calls.client
import unittest.mock

import case

client = unittest.mock.Mock()
for step in case.steps():
    client.send(case.item())
