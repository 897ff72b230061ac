"""Formats that code hosts and editors read: GitHub, GitLab, SARIF."""
