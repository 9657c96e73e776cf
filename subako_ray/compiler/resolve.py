"""A checked manifest and what was loaded for it, to the grants of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import assert_never

from subako_ray.compiler.function_package import LoadedPackage
from subako_ray.compiler.skill import LoadedSkill
from subako_ray.schema import limits
from subako_ray.schema.fixed_tools import BUILTIN_TOOLS, SANDBOX_TOOLS, SKILL_TOOLS, FixedTool
from subako_ray.schema.manifest import (
    FunctionGrant,
    FunctionLimits,
    Manifest,
    McpGrant,
    PathSkill,
    SandboxGrant,
    StoredSkill,
    ToolPolicy,
)
from subako_ray.schema.names import Kind, Policy
from subako_ray.schema.plan import (
    BuiltinPlanGrant,
    BundledSkill,
    FunctionPlanGrant,
    McpPlanGrant,
    Plan,
    PlanApprovals,
    PlanFunctionLimits,
    PlanGrant,
    PlanTool,
    SandboxPlanGrant,
    SkillPlanGrant,
    StoredSkillReference,
    plan_tool,
    seal_plan,
)
from subako_ray.schema.target import Origin

DEFAULT_ON_DRIFT: Policy = "require_approval"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What was read beside the manifest, by the name of the grant."""

    prompt: str | None
    skills: Mapping[str, LoadedSkill]
    packages: Mapping[str, LoadedPackage]


def resolve(manifest: Manifest, loaded: Loaded) -> Plan:
    """Makes the plan. Everything was checked before, so nothing can be wrong any more."""
    approvals = manifest.approvals
    return seal_plan(
        agent=manifest.agent,
        model=manifest.model,
        model_provider_id=manifest.model_provider_id,
        system_prompt=loaded.prompt,
        approvals=PlanApprovals(
            expires_seconds=limits.APPROVAL_EXPIRES_SECONDS
            if approvals is None
            else approvals.expires_seconds
        ),
        grants=tuple(_grants(manifest, loaded)),
    )


def _grants(manifest: Manifest, loaded: Loaded) -> Iterator[PlanGrant]:
    for server in manifest.mcp or ():
        yield _mcp(server)
    for skill in manifest.skills or ():
        yield _skill(skill, loaded)
    for function in manifest.functions or ():
        yield _function(function, loaded.packages[function.name])
    for sandbox in manifest.sandboxes or ():
        yield _sandbox(sandbox)
    for builtin in manifest.builtins or ():
        tools = _fixed("builtin", builtin, BUILTIN_TOOLS[builtin], "allow", {})
        yield BuiltinPlanGrant(name=builtin, tools=tools)


def _mcp(grant: McpGrant) -> McpPlanGrant:
    policies = _policies(grant.tools)
    return McpPlanGrant(
        name=grant.name,
        url=grant.url,
        default_policy=grant.default_policy,
        on_drift=grant.on_drift or DEFAULT_ON_DRIFT,
        # Which tools a server has is known at run time; here are those the manifest names.
        tools=tuple(
            plan_tool("mcp", grant.name, name, policies[name]) for name in sorted(policies)
        ),
    )


def _skill(grant: PathSkill | StoredSkill, loaded: Loaded) -> SkillPlanGrant:
    source: BundledSkill | StoredSkillReference
    match grant:
        case PathSkill():
            skill = loaded.skills[grant.name]
            source = BundledSkill(
                bundle=skill.bundle.digest, description=skill.description, files=skill.files
            )
        case StoredSkill():
            source = StoredSkillReference(skill_id=grant.skill_id, version=grant.version)
        case _:
            assert_never(grant)
    tools = _fixed("skill", grant.name, SKILL_TOOLS, "allow", {})
    return SkillPlanGrant(name=grant.name, source=source, tools=tools)


def _function(grant: FunctionGrant, loaded: LoadedPackage) -> FunctionPlanGrant:
    package, policies = loaded.package, _policies(grant.tools)
    return FunctionPlanGrant(
        name=grant.name,
        bundle=loaded.bundle.digest,
        command=tuple(package.command),
        protocol_version=package.protocol_version,
        default_policy=grant.default_policy,
        on_drift=grant.on_drift or DEFAULT_ON_DRIFT,
        origins=tuple(sorted({str(Origin.parse(origin)) for origin in grant.origins or ()})),
        limits=_limits(grant.limits),
        tools=tuple(
            plan_tool(
                "fn",
                grant.name,
                tool.name,
                policies.get(tool.name, grant.default_policy),
                title=tool.title,
                description=tool.description,
                input_schema=tool.input_schema,
                output_schema=tool.output_schema,
                annotations=tool.annotations,
            )
            for tool in sorted(package.tools, key=lambda tool: tool.name)
        ),
    )


def _sandbox(grant: SandboxGrant) -> SandboxPlanGrant:
    return SandboxPlanGrant(
        name=grant.name,
        release=grant.environment.release,
        # As the product has it: a sandbox without `network` reaches everything.
        network="unrestricted" if grant.network is None else grant.network.type,
        default_policy=grant.default_policy,
        tools=_fixed(
            "sandbox", grant.name, SANDBOX_TOOLS, grant.default_policy, _policies(grant.tools)
        ),
    )


def _limits(given: FunctionLimits | None) -> PlanFunctionLimits:
    given = given or FunctionLimits()
    return PlanFunctionLimits(
        timeout_seconds=given.timeout_seconds or limits.FUNCTION_TIMEOUT_SECONDS,
        memory_mib=given.memory_mib or limits.FUNCTION_MEMORY_MIB,
        processes=given.processes or limits.FUNCTION_PROCESSES,
    )


def _fixed(
    kind: Kind,
    grant: str,
    tools: Iterable[FixedTool],
    default: Policy,
    policies: Mapping[str, Policy],
) -> tuple[PlanTool, ...]:
    return tuple(
        plan_tool(
            kind,
            grant,
            tool.name,
            policies.get(tool.name, default),
            description=tool.description,
            input_schema=tool.input_schema,
        )
        for tool in sorted(tools, key=lambda tool: tool.name)
    )


def _policies(given: Iterable[ToolPolicy] | None) -> dict[str, Policy]:
    return {tool.name: tool.policy for tool in given or ()}
