"""Programs that run inside jails; they are mounted there as files and import nothing of ours."""
