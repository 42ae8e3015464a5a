"""A site: grows a tree on its own people after those that it is sent."""

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from boosted_trees.task import boost, load_data

app = ClientApp()


@app.train()
def fit(message: Message, context: Context) -> Message:
    partition = int(context.node_config["partition-id"])
    data, model = load_data(partition), message.content["arrays"]["0"].numpy().tobytes()
    cyclic = message.content["config"]["train-method"] == "cyclic"
    made = np.frombuffer(boost(model, data, cyclic), dtype=np.uint8)
    metrics = MetricRecord({"num-examples": data.num_row(), "site": partition})
    content = RecordDict({"arrays": ArrayRecord([made]), "metrics": metrics})
    return Message(content, reply_to=message)
