"""Many ranks: each is analyzed on its own, in any process or on any machine, and the small answers are merged."""
