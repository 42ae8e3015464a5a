"""The site's side of the app, whose updates are clipped."""

from fedavg import client_app
from flwr.clientapp.mod import fixedclipping_mod

from clipped import task

app = client_app(task, mods=[fixedclipping_mod])
