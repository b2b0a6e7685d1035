"""The nodes of a linked list keep each other; a variable keeps the first."""
# KEPT BY: linked_list.head
import case


class Node(case.Item):
    def __init__(self, following):
        super().__init__()
        self.following = following


head = None
for step in case.steps(30):
    head = case.noted(Node(head))
