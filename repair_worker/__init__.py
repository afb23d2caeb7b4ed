"""The repair worker: holds sessions and answers their changes at the cost of the new text."""
