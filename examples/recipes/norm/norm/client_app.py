"""The site's side of the app."""

from fedavg import client_app

from norm import task

app = client_app(task)
