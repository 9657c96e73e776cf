"""Every limit that an author, a client or an operator can meet, in one place."""

from __future__ import annotations

from typing import Final

# The manifest.
MANIFEST_BYTES: Final = 4 * 1024 * 1024
MANIFEST_DEPTH: Final = 64
MANIFEST_NODES: Final = 100_000
SYSTEM_PROMPT_CHARACTERS: Final = 262_144
VAULTS_PER_SESSION: Final = 10

# Bundles (the product's limits for skills).
BUNDLE_BYTES: Final = 10 * 1024 * 1024
BUNDLE_FILES: Final = 1000

# A function call.
FUNCTION_TIMEOUT_SECONDS: Final = 30
FUNCTION_TIMEOUT_SECONDS_MAX: Final = 3600
FUNCTION_MEMORY_MIB: Final = 256
FUNCTION_MEMORY_MIB_MAX: Final = 16_384
FUNCTION_PROCESSES: Final = 64
FUNCTION_PROCESSES_MAX: Final = 1024

# A sandbox.
SANDBOX_EXEC_TIMEOUT_SECONDS: Final = 120
SANDBOX_EXEC_TIMEOUT_SECONDS_MAX: Final = 3600

# Calls.
ARGUMENTS_BYTES: Final = 1024 * 1024
ARGUMENTS_DEPTH: Final = 64
LOGGED_DEPTH: Final = 128
"""Nesting kept of a result or a client's schema; pydantic's reader of a log stops at 200."""
RESULT_BYTES: Final = 256 * 1024
"""Text and structured content kept of one result; what is over is cut with a stated marker."""
REPLY_BYTES: Final = 8 * 1024 * 1024
"""Bytes read of one source's reply before reading stops."""
RESULT_BLOCKS: Final = 1000
TOOLS_PER_GRANT: Final = 1000
APPROVAL_EXPIRES_SECONDS: Final = 24 * 3600
APPROVAL_EXPIRES_SECONDS_MAX: Final = 30 * 24 * 3600
MCP_CONNECT_SECONDS: Final = 20
MCP_CALL_SECONDS: Final = 300

# Clients of a session (the product's limits).
CLIENT_TOOLS: Final = 64
CLIENT_TOOL_DESCRIPTION_CHARACTERS: Final = 4096
CLIENT_RESULT_CHARACTERS: Final = 65_536
CLIENT_ACK_SECONDS: Final = 10
CLIENT_RESULT_SECONDS: Final = 300
SESSION_NAME_CHARACTERS: Final = 200
