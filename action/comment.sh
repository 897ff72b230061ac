#!/usr/bin/env bash
# Writes the comment of the pull request: in place of the one an earlier run wrote, anew only where there is news.
set -euo pipefail

TAG=$(head -n 1 "$FILE")
export TAG
body="$FILE.posted"
{
    cat "$FILE"
    [ -z "$REPORT_URL" ] || printf '\n[Full report](%s)\n' "$REPORT_URL"
} >"$body"
[ -z "$REPORT_URL" ] || printf '\n[Full report](%s)\n' "$REPORT_URL" >>"$GITHUB_STEP_SUMMARY"

# Only a comment of our own: anyone may write the tag into theirs.
ours='[.comments[] | select(.viewerDidAuthor and (.body | startswith(env.TAG)))] | last | .url // empty'

write() {
    local url
    url=$(gh pr view "$PULL_REQUEST" --repo "$GITHUB_REPOSITORY" --json comments --jq "$ours") || return
    if [ -n "$url" ]; then
        gh api --silent --method PATCH "repos/$GITHUB_REPOSITORY/issues/comments/${url##*-}" --field "body=@$body"
    elif [ "$COMMENT" = changed ] && [ "$(sed -n 2p "$FILE")" = "<!-- nothing changed -->" ]; then
        echo "Nothing changed against the baseline: no comment."
    else
        gh pr comment "$PULL_REQUEST" --repo "$GITHUB_REPOSITORY" --body-file "$body"
    fi
}

if ! write; then
    echo "::warning title=traceopt::the comment could not be written; the job needs 'permissions: pull-requests: write'," \
        "which pull requests from forks do not get. The summary of the job has it all."
fi
