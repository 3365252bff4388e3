# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_bearward_global_optspecs
    string join \n h/help V/version
end

function __fish_bearward_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_bearward_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_bearward_using_subcommand
    set -l cmd (__fish_bearward_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c bearward -n "__fish_bearward_needs_command" -s h -l help -d 'Print help'
complete -c bearward -n "__fish_bearward_needs_command" -s V -l version -d 'Print version'
complete -c bearward -n "__fish_bearward_needs_command" -f -a "serve" -d 'Run the gateway'
complete -c bearward -n "__fish_bearward_needs_command" -f -a "init" -d 'Write a first gateway.toml'
complete -c bearward -n "__fish_bearward_needs_command" -f -a "check" -d 'Check the configuration without starting the gateway. Report every error at once. Look at all files that it names, and at the secrets and the database as a start would find them, also beside a running gateway. Change and create nothing'
complete -c bearward -n "__fish_bearward_needs_command" -f -a "schema" -d 'Print the JSON Schema of gateway.toml, for editors and linters'
complete -c bearward -n "__fish_bearward_needs_command" -f -a "explain" -d 'Show step by step how the gateway decides about a request. Exit with 0 if it would allow the request, with 1 if not, and with 3 if it is not known whether the token is revoked'
complete -c bearward -n "__fish_bearward_needs_command" -f -a "verify" -d 'Verify the signature of a token from standard input. Exit with 0 if it is valid. It may be revoked: see explain'
complete -c bearward -n "__fish_bearward_needs_command" -f -a "demo" -d 'Run a gateway in front of a small echo backend, and print requests to try'
complete -c bearward -n "__fish_bearward_needs_command" -f -a "reload" -d 'Make the running gateway reload its configuration, and show what has changed'
complete -c bearward -n "__fish_bearward_needs_command" -f -a "top" -d 'Show what the running gateway does now: requests, rejections, durations, limits. One screen in a terminal, else one line for each second'
complete -c bearward -n "__fish_bearward_needs_command" -f -a "token" -d 'Issue, list and revoke tokens of the running gateway'
complete -c bearward -n "__fish_bearward_needs_command" -f -a "apikey" -d 'Issue, list and revoke API keys of the running gateway'
complete -c bearward -n "__fish_bearward_needs_command" -f -a "client" -d 'List the OAuth clients of the running gateway'
complete -c bearward -n "__fish_bearward_needs_command" -f -a "keys" -d 'List, rotate and revoke the signing keys of the running gateway'
complete -c bearward -n "__fish_bearward_needs_command" -f -a "store" -d 'Move the store'
complete -c bearward -n "__fish_bearward_using_subcommand serve" -l config -d 'Configuration file. Relative paths in it start at its folder' -r -F
complete -c bearward -n "__fish_bearward_using_subcommand serve" -l take-over -d 'Take over the sockets of the gateway that runs with this configuration, which then drains. No client is rejected. If no such gateway runs, start as usual'
complete -c bearward -n "__fish_bearward_using_subcommand serve" -s h -l help -d 'Print help'
complete -c bearward -n "__fish_bearward_using_subcommand init" -l backend -d 'URL of the service behind the gateway, such as http://127.0.0.1:3000' -r
complete -c bearward -n "__fish_bearward_using_subcommand init" -l issuer -d 'Accept the tokens of this issuer. Its discovery document and keys are fetched now' -r
complete -c bearward -n "__fish_bearward_using_subcommand init" -l audience -d 'The `aud` that this issuer gives to tokens for this gateway. Default: the URL of the gateway' -r
complete -c bearward -n "__fish_bearward_using_subcommand init" -l domain -d 'The name by which clients reach the gateway, such as api.example.com. Default: localhost, for trials' -r
complete -c bearward -n "__fish_bearward_using_subcommand init" -l output -d 'The new file, or "-" for standard output. An existing file is never overwritten' -r -F
complete -c bearward -n "__fish_bearward_using_subcommand init" -s h -l help -d 'Print help'
complete -c bearward -n "__fish_bearward_using_subcommand check" -l config -d 'Configuration file. Relative paths in it start at its folder' -r -F
complete -c bearward -n "__fish_bearward_using_subcommand check" -l json -d 'Print errors and warnings as JSON'
complete -c bearward -n "__fish_bearward_using_subcommand check" -l effective -d 'Print every key with its value and where the value comes from: a file and its line, or the default'
complete -c bearward -n "__fish_bearward_using_subcommand check" -l deny-warnings -d 'Fail if there is a warning'
complete -c bearward -n "__fish_bearward_using_subcommand check" -l offline -d 'Do not connect to the PostgreSQL database of the configuration'
complete -c bearward -n "__fish_bearward_using_subcommand check" -s h -l help -d 'Print help'
complete -c bearward -n "__fish_bearward_using_subcommand schema" -s h -l help -d 'Print help'
complete -c bearward -n "__fish_bearward_using_subcommand explain" -l config -d 'Configuration file. Relative paths in it start at its folder' -r -F
complete -c bearward -n "__fish_bearward_using_subcommand explain" -l request-id -d 'Say why the running gateway rejected this request, or why its response broke off: the `requestId` of its response, or of its line in the access log. Nothing else is needed. Exit with 0 if the gateway knows the request, with 3 if not' -r
complete -c bearward -n "__fish_bearward_using_subcommand explain" -l method -d 'The request method' -r
complete -c bearward -n "__fish_bearward_using_subcommand explain" -l path -d 'Path and query' -r
complete -c bearward -n "__fish_bearward_using_subcommand explain" -l host -d 'The `Host` header' -r
complete -c bearward -n "__fish_bearward_using_subcommand explain" -l token-in -d 'Where the request has the token: header, cookie:NAME, query:NAME or websocket' -r
complete -c bearward -n "__fish_bearward_using_subcommand explain" -l header -d 'Another header of the request, as "Origin: https://app.example". Can be repeated' -r
complete -c bearward -n "__fish_bearward_using_subcommand explain" -l certificate -d 'The certificate that the client shows, with its chain: a file in PEM' -r -F
complete -c bearward -n "__fish_bearward_using_subcommand explain" -l at -d 'Decide as at this time, in RFC 3339 as in the access log. Default: now' -r
complete -c bearward -n "__fish_bearward_using_subcommand explain" -l token-stdin -d 'Read a token from standard input. Arguments are readable by other users, so they must not hold one'
complete -c bearward -n "__fish_bearward_using_subcommand explain" -l cleartext -d 'The request arrives without TLS'
complete -c bearward -n "__fish_bearward_using_subcommand explain" -l json -d 'Print the steps and the decision as JSON'
complete -c bearward -n "__fish_bearward_using_subcommand explain" -s h -l help -d 'Print help'
complete -c bearward -n "__fish_bearward_using_subcommand verify" -l jwks -d 'A JSON Web Key Set. Its keys must meet the same rules as those of an issuer' -r -F
complete -c bearward -n "__fish_bearward_using_subcommand verify" -l algorithm -d 'The allowed algorithms, needed for keys that do not name theirs. Can be repeated. Default: all' -r
complete -c bearward -n "__fish_bearward_using_subcommand verify" -l config -d 'Configuration file. Relative paths in it start at its folder' -r -F
complete -c bearward -n "__fish_bearward_using_subcommand verify" -l at -d 'Decide as at this time, in RFC 3339 as in the access log. Default: now' -r
complete -c bearward -n "__fish_bearward_using_subcommand verify" -l claims -d 'Check the claims too, by the rules that the configuration has for the token\'s issuer'
complete -c bearward -n "__fish_bearward_using_subcommand verify" -l json -d 'Print the steps and the decision as JSON'
complete -c bearward -n "__fish_bearward_using_subcommand verify" -s h -l help -d 'Print help'
complete -c bearward -n "__fish_bearward_using_subcommand demo" -s h -l help -d 'Print help'
complete -c bearward -n "__fish_bearward_using_subcommand reload" -l config -d 'Configuration file. Relative paths in it start at its folder' -r -F
complete -c bearward -n "__fish_bearward_using_subcommand reload" -l dry-run -d 'Only show what a reload would change, and which changes require a restart. Exit with 2 if a reload would reject the file'
complete -c bearward -n "__fish_bearward_using_subcommand reload" -l json -d 'Print the result as JSON'
complete -c bearward -n "__fish_bearward_using_subcommand reload" -s h -l help -d 'Print help'
complete -c bearward -n "__fish_bearward_using_subcommand top" -l config -d 'Configuration file. Relative paths in it start at its folder' -r -F
complete -c bearward -n "__fish_bearward_using_subcommand top" -l once -d 'Print the last second only, and end'
complete -c bearward -n "__fish_bearward_using_subcommand top" -l json -d 'Print a line of JSON for each second'
complete -c bearward -n "__fish_bearward_using_subcommand top" -s h -l help -d 'Print help'
complete -c bearward -n "__fish_bearward_using_subcommand token; and not __fish_seen_subcommand_from issue list revoke" -s h -l help -d 'Print help'
complete -c bearward -n "__fish_bearward_using_subcommand token; and not __fish_seen_subcommand_from issue list revoke" -f -a "issue" -d 'Start a session and print its first token pair'
complete -c bearward -n "__fish_bearward_using_subcommand token; and not __fish_seen_subcommand_from issue list revoke" -f -a "list" -d 'List the sessions of a subject, live and ended, or the live ones of a client or resource'
complete -c bearward -n "__fish_bearward_using_subcommand token; and not __fish_seen_subcommand_from issue list revoke" -f -a "revoke" -d 'Revoke one session, one access token, or all tokens of a subject, a client, an issuer or a session there'
complete -c bearward -n "__fish_bearward_using_subcommand token; and __fish_seen_subcommand_from issue" -l config -d 'Configuration file. Relative paths in it start at its folder' -r -F
complete -c bearward -n "__fish_bearward_using_subcommand token; and __fish_seen_subcommand_from issue" -l subject -d 'The user or service that the token is for: its `sub`' -r
complete -c bearward -n "__fish_bearward_using_subcommand token; and __fish_seen_subcommand_from issue" -l scope -d 'Scopes, separated by spaces' -r
complete -c bearward -n "__fish_bearward_using_subcommand token; and __fish_seen_subcommand_from issue" -l label -d 'Name of the session in a list of devices' -r
complete -c bearward -n "__fish_bearward_using_subcommand token; and __fish_seen_subcommand_from issue" -l client-id -d 'The client that gets the token: its `client_id`' -r
complete -c bearward -n "__fish_bearward_using_subcommand token; and __fish_seen_subcommand_from issue" -l jkt -d 'Bind the tokens to the key of a client (DPoP): the SHA-256 thumbprint of its public key, by RFC 7638' -r
complete -c bearward -n "__fish_bearward_using_subcommand token; and __fish_seen_subcommand_from issue" -l certificate -d 'Bind the tokens to the certificate of a client (RFC 8705): a file in PEM' -r -F
complete -c bearward -n "__fish_bearward_using_subcommand token; and __fish_seen_subcommand_from issue" -l json -d 'Print the token pair as JSON'
complete -c bearward -n "__fish_bearward_using_subcommand token; and __fish_seen_subcommand_from issue" -s h -l help -d 'Print help'
complete -c bearward -n "__fish_bearward_using_subcommand token; and __fish_seen_subcommand_from list" -l config -d 'Configuration file. Relative paths in it start at its folder' -r -F
complete -c bearward -n "__fish_bearward_using_subcommand token; and __fish_seen_subcommand_from list" -l subject -d 'The `sub` of the tokens' -r
complete -c bearward -n "__fish_bearward_using_subcommand token; and __fish_seen_subcommand_from list" -l client-id -d 'The client of the tokens: its `client_id`' -r
complete -c bearward -n "__fish_bearward_using_subcommand token; and __fish_seen_subcommand_from list" -l resource -d 'The protected resource that the tokens are for: a URL in their `aud`' -r
complete -c bearward -n "__fish_bearward_using_subcommand token; and __fish_seen_subcommand_from list" -l json -d 'Print the list as JSON'
complete -c bearward -n "__fish_bearward_using_subcommand token; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c bearward -n "__fish_bearward_using_subcommand token; and __fish_seen_subcommand_from revoke" -l config -d 'Configuration file. Relative paths in it start at its folder' -r -F
complete -c bearward -n "__fish_bearward_using_subcommand token; and __fish_seen_subcommand_from revoke" -l subject -d 'All tokens of this subject. With --client-id, those of this client alone' -r
complete -c bearward -n "__fish_bearward_using_subcommand token; and __fish_seen_subcommand_from revoke" -l client-id -d 'All tokens of this client, by its `client_id`' -r
complete -c bearward -n "__fish_bearward_using_subcommand token; and __fish_seen_subcommand_from revoke" -l jti -d 'One access token, by its `jti`' -r
complete -c bearward -n "__fish_bearward_using_subcommand token; and __fish_seen_subcommand_from revoke" -l session -d 'All tokens of this session at another issuer, by its `sid`, and the sessions that began there' -r
complete -c bearward -n "__fish_bearward_using_subcommand token; and __fish_seen_subcommand_from revoke" -l issuer -d 'The issuer of the tokens. Default: this gateway; with --all, every issuer' -r
complete -c bearward -n "__fish_bearward_using_subcommand token; and __fish_seen_subcommand_from revoke" -l before -d 'Only sessions that began at or before this time, as 2026-11-20T23:05:21Z. Default: now' -r
complete -c bearward -n "__fish_bearward_using_subcommand token; and __fish_seen_subcommand_from revoke" -l all -d 'All tokens'
complete -c bearward -n "__fish_bearward_using_subcommand token; and __fish_seen_subcommand_from revoke" -l json -d 'Print the result as JSON'
complete -c bearward -n "__fish_bearward_using_subcommand token; and __fish_seen_subcommand_from revoke" -s h -l help -d 'Print help'
complete -c bearward -n "__fish_bearward_using_subcommand apikey; and not __fish_seen_subcommand_from issue list revoke" -s h -l help -d 'Print help'
complete -c bearward -n "__fish_bearward_using_subcommand apikey; and not __fish_seen_subcommand_from issue list revoke" -f -a "issue" -d 'Issue an API key and print it. It is shown only once'
complete -c bearward -n "__fish_bearward_using_subcommand apikey; and not __fish_seen_subcommand_from issue list revoke" -f -a "list" -d 'List API keys, live and ended, without their secrets'
complete -c bearward -n "__fish_bearward_using_subcommand apikey; and not __fish_seen_subcommand_from issue list revoke" -f -a "revoke" -d 'Revoke one API key'
complete -c bearward -n "__fish_bearward_using_subcommand apikey; and __fish_seen_subcommand_from issue" -l config -d 'Configuration file. Relative paths in it start at its folder' -r -F
complete -c bearward -n "__fish_bearward_using_subcommand apikey; and __fish_seen_subcommand_from issue" -l subject -d 'The user or service that the key is for: the `sub` that backends and rules see' -r
complete -c bearward -n "__fish_bearward_using_subcommand apikey; and __fish_seen_subcommand_from issue" -l scope -d 'Scopes, separated by spaces' -r
complete -c bearward -n "__fish_bearward_using_subcommand apikey; and __fish_seen_subcommand_from issue" -l label -d 'Name of the key in lists' -r
complete -c bearward -n "__fish_bearward_using_subcommand apikey; and __fish_seen_subcommand_from issue" -l client-id -d 'The client that gets the key: its `client_id`' -r
complete -c bearward -n "__fish_bearward_using_subcommand apikey; and __fish_seen_subcommand_from issue" -l expires-in -d 'Seconds until the key expires. Default: 90 days' -r
complete -c bearward -n "__fish_bearward_using_subcommand apikey; and __fish_seen_subcommand_from issue" -l rate -d 'Maximum number of requests, such as 100/min. The units are s, min, h and day. Default: no limit of its own' -r
complete -c bearward -n "__fish_bearward_using_subcommand apikey; and __fish_seen_subcommand_from issue" -l json -d 'Print the key as JSON'
complete -c bearward -n "__fish_bearward_using_subcommand apikey; and __fish_seen_subcommand_from issue" -s h -l help -d 'Print help'
complete -c bearward -n "__fish_bearward_using_subcommand apikey; and __fish_seen_subcommand_from list" -l config -d 'Configuration file. Relative paths in it start at its folder' -r -F
complete -c bearward -n "__fish_bearward_using_subcommand apikey; and __fish_seen_subcommand_from list" -l subject -d 'Only the keys of this `sub`' -r
complete -c bearward -n "__fish_bearward_using_subcommand apikey; and __fish_seen_subcommand_from list" -l json -d 'Print the list as JSON'
complete -c bearward -n "__fish_bearward_using_subcommand apikey; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c bearward -n "__fish_bearward_using_subcommand apikey; and __fish_seen_subcommand_from revoke" -l config -d 'Configuration file. Relative paths in it start at its folder' -r -F
complete -c bearward -n "__fish_bearward_using_subcommand apikey; and __fish_seen_subcommand_from revoke" -l json -d 'Print the result as JSON'
complete -c bearward -n "__fish_bearward_using_subcommand apikey; and __fish_seen_subcommand_from revoke" -s h -l help -d 'Print help'
complete -c bearward -n "__fish_bearward_using_subcommand client; and not __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c bearward -n "__fish_bearward_using_subcommand client; and not __fish_seen_subcommand_from list" -f -a "list" -d 'List the clients that are registered, that have a document in the memory of this gateway, or that have live sessions, with the number of these'
complete -c bearward -n "__fish_bearward_using_subcommand client; and __fish_seen_subcommand_from list" -l config -d 'Configuration file. Relative paths in it start at its folder' -r -F
complete -c bearward -n "__fish_bearward_using_subcommand client; and __fish_seen_subcommand_from list" -l json -d 'Print the list as JSON'
complete -c bearward -n "__fish_bearward_using_subcommand client; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c bearward -n "__fish_bearward_using_subcommand keys; and not __fish_seen_subcommand_from list rotate revoke" -s h -l help -d 'Print help'
complete -c bearward -n "__fish_bearward_using_subcommand keys; and not __fish_seen_subcommand_from list rotate revoke" -f -a "list" -d 'List the current, next and former signing keys'
complete -c bearward -n "__fish_bearward_using_subcommand keys; and not __fish_seen_subcommand_from list rotate revoke" -f -a "rotate" -d 'Publish the next signing key. It signs after tokens.key_ahead'
complete -c bearward -n "__fish_bearward_using_subcommand keys; and not __fish_seen_subcommand_from list rotate revoke" -f -a "revoke" -d 'Revoke a signing key: the gateway rejects every token that it signed, and signs with another key'
complete -c bearward -n "__fish_bearward_using_subcommand keys; and __fish_seen_subcommand_from list" -l config -d 'Configuration file. Relative paths in it start at its folder' -r -F
complete -c bearward -n "__fish_bearward_using_subcommand keys; and __fish_seen_subcommand_from list" -l json -d 'Print the list as JSON'
complete -c bearward -n "__fish_bearward_using_subcommand keys; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c bearward -n "__fish_bearward_using_subcommand keys; and __fish_seen_subcommand_from rotate" -l config -d 'Configuration file. Relative paths in it start at its folder' -r -F
complete -c bearward -n "__fish_bearward_using_subcommand keys; and __fish_seen_subcommand_from rotate" -l now -d 'Sign with the next key at once. Services that cache the key set may reject its tokens until they fetch it again'
complete -c bearward -n "__fish_bearward_using_subcommand keys; and __fish_seen_subcommand_from rotate" -l root -d 'Add a root secret to store.secret_file instead. From its next start, the gateway seals the signing keys with it'
complete -c bearward -n "__fish_bearward_using_subcommand keys; and __fish_seen_subcommand_from rotate" -l json -d 'Print the result as JSON'
complete -c bearward -n "__fish_bearward_using_subcommand keys; and __fish_seen_subcommand_from rotate" -s h -l help -d 'Print help'
complete -c bearward -n "__fish_bearward_using_subcommand keys; and __fish_seen_subcommand_from revoke" -l config -d 'Configuration file. Relative paths in it start at its folder' -r -F
complete -c bearward -n "__fish_bearward_using_subcommand keys; and __fish_seen_subcommand_from revoke" -l may-refresh -d 'Still accept the key\'s tokens at a refresh. Default: clients with no other token must log in again. The same command without it takes this back. A key that is revoked without it stays so'
complete -c bearward -n "__fish_bearward_using_subcommand keys; and __fish_seen_subcommand_from revoke" -l json -d 'Print the result as JSON'
complete -c bearward -n "__fish_bearward_using_subcommand keys; and __fish_seen_subcommand_from revoke" -s h -l help -d 'Print help'
complete -c bearward -n "__fish_bearward_using_subcommand store; and not __fish_seen_subcommand_from copy migrate sweep" -s h -l help -d 'Print help'
complete -c bearward -n "__fish_bearward_using_subcommand store; and not __fish_seen_subcommand_from copy migrate sweep" -f -a "copy" -d 'Copy sessions, revocations, signing keys and undelivered audit events from an SQLite database to the PostgreSQL database of the configuration. Stop the gateway first. No session ends'
complete -c bearward -n "__fish_bearward_using_subcommand store; and not __fish_seen_subcommand_from copy migrate sweep" -f -a "migrate" -d 'Create the tables in PostgreSQL, or change them for this version, beside running gateways of the version before. Indexes of large tables are built without a limit of time, and no refresh waits for them. SQLite needs no such step, because a gateway makes it at its start'
complete -c bearward -n "__fish_bearward_using_subcommand store; and not __fish_seen_subcommand_from copy migrate sweep" -f -a "sweep" -d 'Delete expired sessions, revocations and list entries at once. A running gateway deletes them slowly; after a long stop, or before a copy or backup, this is faster. With SQLite, stop the gateway first. Fail if there is no database'
complete -c bearward -n "__fish_bearward_using_subcommand store; and __fish_seen_subcommand_from copy" -l config -d 'Configuration file. Relative paths in it start at its folder' -r -F
complete -c bearward -n "__fish_bearward_using_subcommand store; and __fish_seen_subcommand_from copy" -l from -d 'The SQLite database. "sqlite": the file bearward.db beside the configuration' -r -F
complete -c bearward -n "__fish_bearward_using_subcommand store; and __fish_seen_subcommand_from copy" -l to -d 'The kind of the store in the configuration' -r -f -a "postgres\t''"
complete -c bearward -n "__fish_bearward_using_subcommand store; and __fish_seen_subcommand_from copy" -s h -l help -d 'Print help'
complete -c bearward -n "__fish_bearward_using_subcommand store; and __fish_seen_subcommand_from migrate" -l config -d 'Configuration file. Relative paths in it start at its folder' -r -F
complete -c bearward -n "__fish_bearward_using_subcommand store; and __fish_seen_subcommand_from migrate" -l owner -d 'The role that owns the tables, if it is not the user of `store.postgres`' -r
complete -c bearward -n "__fish_bearward_using_subcommand store; and __fish_seen_subcommand_from migrate" -l owner-password-file -d 'The password of that role' -r -F
complete -c bearward -n "__fish_bearward_using_subcommand store; and __fish_seen_subcommand_from migrate" -s h -l help -d 'Print help'
complete -c bearward -n "__fish_bearward_using_subcommand store; and __fish_seen_subcommand_from sweep" -l config -d 'Configuration file. Relative paths in it start at its folder' -r -F
complete -c bearward -n "__fish_bearward_using_subcommand store; and __fish_seen_subcommand_from sweep" -s h -l help -d 'Print help'
