"""The fixes of a report: cards, the plan in numbers, the headline."""
