#!/usr/bin/env bash
# Comments on the pull request. Updates the comment of an earlier run, or posts a new one if something changed.
set -euo pipefail

TAG=$(head -n 1 "$FILE")
export TAG
body="$FILE.posted"
{
    cat "$FILE"
    [ -z "$REPORT_URL" ] || printf '\n[Full report](%s)\n' "$REPORT_URL"
} >"$body"
[ -z "$REPORT_URL" ] || printf '\n[Full report](%s)\n' "$REPORT_URL" >>"$GITHUB_STEP_SUMMARY"

# Only update a comment of our own: anyone can put the tag into theirs.
ours='[.comments[] | select(.viewerDidAuthor and (.body | startswith(env.TAG)))] | last | .url // empty'

write() {
    local url
    url=$(gh pr view "$PULL_REQUEST" --repo "$GITHUB_REPOSITORY" --json comments --jq "$ours") || return
    if [ -n "$url" ]; then
        gh api --silent --method PATCH "repos/$GITHUB_REPOSITORY/issues/comments/${url##*-}" --field "body=@$body"
    elif [ "$COMMENT" = changed ] && [ "$(sed -n 2p "$FILE")" = "<!-- nothing changed -->" ]; then
        echo "Nothing changed against the baseline, so no comment is posted."
    else
        gh pr comment "$PULL_REQUEST" --repo "$GITHUB_REPOSITORY" --body-file "$body"
    fi
}

if ! write; then
    echo "::warning title=traceopt::could not write the comment: the job needs 'permissions: pull-requests: write'," \
        "which pull requests from forks do not get. The job summary has the same content."
fi
