"""What torch.compile did in the script's process, as Dynamo and Inductor noted it themselves."""
