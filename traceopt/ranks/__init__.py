"""Many ranks: each is analyzed by itself, in any process or on any machine, and the small answers are merged."""
