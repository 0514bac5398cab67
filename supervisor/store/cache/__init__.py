"""The `cached` decorator and its calls."""
