"""Agents that learn from what they do: python reinforcement.py KIND."""

from __future__ import annotations

import random
import sys
from collections import deque

import torch
from torch import Tensor, nn
from torch.distributions import Categorical
from torch.nn import functional
from true_steps import np, seed_everything, true_step


class Pole:
    """An environment in plain Python: keep a number near zero."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.reset()

    def reset(self) -> list[float]:
        self.position, self.speed, self.age = self.random.uniform(-0.1, 0.1), 0.0, 0
        return [self.position, self.speed]

    def step(self, action: int) -> tuple[list[float], float, bool]:
        self.speed += (0.02 if action else -0.02) + 0.01 * self.position
        self.position += self.speed
        self.age += 1
        ended = abs(self.position) > 1 or self.age >= 40
        return ([self.position, self.speed] if not ended else self.reset()), 1.0, ended


def mlp(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, outputs))


def rollouts() -> None:
    """PPO: 32 steps in 4 environments, then 4 epochs of 4 minibatches: 16 updates after each rollout."""
    actor, critic = mlp(2), mlp(1)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=2.5e-4, eps=1e-5)
    environments = [Pole(seed) for seed in range(4)]
    observation = torch.tensor([environment.reset() for environment in environments])
    for iteration in range(6):
        seen, actions, log_probs, rewards, values = [], [], [], [], []
        for _ in range(32):
            with torch.no_grad():
                chosen = Categorical(logits=actor(observation))
                action = chosen.sample()
                values.append(critic(observation).squeeze(1))
                log_probs.append(chosen.log_prob(action))
            results = [environment.step(a) for environment, a in zip(environments, action.tolist(), strict=True)]
            seen.append(observation)
            actions.append(action)
            rewards.append(torch.tensor([reward for _, reward, _ in results]))
            observation = torch.tensor([state for state, _, _ in results])
        returns = torch.stack(rewards).flip(0).cumsum(0).flip(0).flatten() / 32
        states, acts, olds = torch.cat(seen), torch.cat(actions), torch.cat(log_probs)
        advantages = returns - torch.cat(values)
        order = np.arange(128)
        for _ in range(4):
            np.random.shuffle(order)
            for part in np.split(order, 4):
                new = Categorical(logits=actor(states[part]))
                ratio = (new.log_prob(acts[part]) - olds[part]).exp()
                gain = torch.min(ratio * advantages[part], ratio.clamp(0.8, 1.2) * advantages[part]).mean()
                error = functional.mse_loss(critic(states[part]).squeeze(1), returns[part])
                loss = 0.5 * error - gain - 0.01 * new.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(actor.parameters(), 0.5)
                optimizer.step()
                true_step()
        print(f"iteration {iteration}: loss {loss.item():.6f}")


def replay_buffer() -> None:
    """DQN: an update after every fourth step in the environment, a copy of the network every 50."""
    online, target = mlp(2), mlp(2)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
    memory: deque[tuple[list[float], int, float, list[float], bool]] = deque(maxlen=1000)
    environment = Pole(0)
    state = environment.reset()
    for step in range(64 + 4 * 60):
        if random.random() < 0.1:
            action = random.randrange(2)
        else:
            with torch.no_grad():
                action = int(online(torch.tensor(state)).argmax())
        following, reward, ended = environment.step(action)
        memory.append((state, action, reward, following, ended))
        state = following
        if step < 64 or step % 4:
            continue
        batch = list(zip(*random.sample(memory, 16), strict=True))
        states, nexts = torch.tensor(batch[0]), torch.tensor(batch[3])
        with torch.no_grad():
            goal = torch.tensor(batch[2]) + 0.99 * target(nexts).max(1).values * ~torch.tensor(batch[4])
        guess = online(states).gather(1, torch.tensor(batch[1])[:, None]).squeeze(1)
        loss = functional.mse_loss(guess, goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        true_step()
        priorities = [sum(i * j % 7 for j in range(30)) for i in range(1000)]  # planted
        if step % 200 == 0:
            target.load_state_dict(online.state_dict())
            print(f"step {step}: td loss {loss.item():.6f} {sum(priorities)}")


def soft_actor_critic() -> None:
    """SAC: two critics, an actor every second update, a temperature, and targets that follow slowly."""
    actor, first, second = mlp(2), mlp(2), mlp(2)
    targets = [mlp(2), mlp(2)]
    log_alpha = torch.zeros(1, requires_grad=True)
    q_optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=1e-3)
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=3e-4)
    alpha_optimizer = torch.optim.Adam([log_alpha], lr=1e-3)

    def update(states: Tensor, policy_too: bool) -> Tensor:
        with torch.no_grad():
            probability = torch.softmax(actor(states), 1)
            goal = 1 + 0.99 * (probability * torch.min(targets[0](states), targets[1](states))).sum(1, keepdim=True)
        q_loss = functional.mse_loss(first(states)[:, :1], goal) + functional.mse_loss(second(states)[:, :1], goal)
        q_optimizer.zero_grad()
        q_loss.backward()
        q_optimizer.step()
        if policy_too:
            for _ in range(2):  # to make up for the delay
                probability, log_probability = torch.softmax(actor(states), 1), torch.log_softmax(actor(states), 1)
                value = torch.min(first(states), second(states)).detach()
                actor_loss = (probability * (log_alpha.exp().detach() * log_probability - value)).sum(1).mean()
                actor_optimizer.zero_grad()
                actor_loss.backward()
                actor_optimizer.step()
                entropy = (probability * log_probability).sum(1).detach()
                alpha_optimizer.zero_grad()
                (-log_alpha.exp() * (entropy + 0.5)).mean().backward()
                alpha_optimizer.step()
        return q_loss

    for step in range(120):
        loss = update(torch.randn(16, 2), policy_too=step % 2 == 0)
        with torch.no_grad():
            for target, online in zip(targets, (first, second), strict=True):
                for old, new in zip(target.parameters(), online.parameters(), strict=True):
                    old.lerp_(new, 0.005)
        if step % 2 == 1:
            true_step()  # two updates of the critics and two of the actor
        if step % 40 == 0:
            print(f"step {step}: q loss {loss.item():.6f} alpha {log_alpha.exp().item():.6f}")


if __name__ == "__main__":
    seed_everything()
    {kind.__name__: kind for kind in (rollouts, replay_buffer, soft_actor_critic)}[sys.argv[1]]()
