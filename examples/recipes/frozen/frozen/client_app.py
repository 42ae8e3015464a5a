"""The site's side of the app."""

from fedavg import client_app

from frozen import task

app = client_app(task)
