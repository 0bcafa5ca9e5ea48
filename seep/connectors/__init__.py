"""Where rows come from and go to: memory, generators, files, the screen."""
