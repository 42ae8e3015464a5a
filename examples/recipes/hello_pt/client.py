"""A site: trains the network of ../cnn on its own images, as hello-pt does."""

import nvflare.client as flare
from cnn import Net, load_data, train


def main() -> None:
    flare.init()
    loader = load_data(int(flare.get_site_name()[-1]) - 1)
    model = Net()
    while flare.is_running():
        model.load_state_dict(flare.receive().params)
        train(model, loader)
        steps = {"NUM_STEPS_CURRENT_ROUND": len(loader)}
        flare.send(flare.FLModel(params=model.state_dict(), meta=steps))


if __name__ == "__main__":
    main()
