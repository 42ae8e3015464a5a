"""A site: trains the model that it is sent on its own people, and returns it."""

from __future__ import annotations

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from task import load, make_model, train

app = ClientApp()


@app.train()
def fit(message: Message, context: Context) -> Message:
    partition = int(context.node_config["partition-id"])
    inputs, labels = load(partition)
    model = make_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loss = train(model, inputs, labels)
    metrics = MetricRecord({"num-examples": len(labels), "train_loss": loss, "site": partition})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)
