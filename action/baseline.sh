#!/usr/bin/env bash
# Fetches the newest result of the target branch of the pull request. Without one there is nothing to compare with.
set -euo pipefail

name="traceopt-baseline-$LABEL"
export BASE_BRANCH
# A fork may have a branch with the same name. Its results are not the baseline.
newest='[.artifacts[] | select(.expired | not) | select(.workflow_run.head_branch == env.BASE_BRANCH)
         | select(.workflow_run.head_repository_id == .workflow_run.repository_id)]
        | sort_by(.created_at) | last | .workflow_run.id // empty'

if ! run=$(gh api "repos/$GITHUB_REPOSITORY/actions/artifacts?name=$name&per_page=100" --jq "$newest"); then
    echo "::warning title=traceopt::could not look up the baseline: the job needs 'permissions: actions: read'"
elif [ -z "$run" ]; then
    echo "No baseline for $BASE_BRANCH yet: the first run of this workflow on that branch creates one."
elif gh run download "$run" --repo "$GITHUB_REPOSITORY" --name "$name" --dir "$FOLDER/baseline"; then
    echo "file=$FOLDER/baseline/baseline.json" >>"$GITHUB_OUTPUT"
else
    echo "::warning title=traceopt::could not download the baseline of run $run"
fi
