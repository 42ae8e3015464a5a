"""The server's side of the app, which overheard records."""

from fedavg import server_app

from norm import task

app = server_app(task, rounds=3)
