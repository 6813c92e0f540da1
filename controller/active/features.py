"""Finalize the levels of the features of Kafka 4, and change them."""

from collections.abc import Mapping
from contextlib import suppress

from controller.active.term import Term
from controller.machine.events import UpdateFeatures
from controller.machine.model import ApiError, FeatureChange
from controller.store.state_store import Create, NodeExists, NoNode, SetData
from controller.tree import paths
from protocol.errors import ErrorCode

EMPTY = paths.FinalizedFeatures(paths.FIRST_FEATURE_NODE_WITHOUT_RANGES, True, {})


class Features:
    """The node of levels. A feature without a level in it is finalized at its highest."""

    def __init__(self, term: Term) -> None:
        self._term = term

    async def ensure_node(self) -> None:
        """Create the node of the levels, if this controller supports any feature."""
        if self._term.settings.features:
            with suppress(NodeExists):
                await self._term.store.multi([Create(paths.FEATURE_LEVELS, paths.encode_features(EMPTY))])

    async def update(self, event: UpdateFeatures) -> dict[str, ApiError]:
        """Change the levels that can be changed; return one result per feature."""
        store = self._term.store
        try:
            node = await store.store.get(paths.FEATURE_LEVELS)
        except NoNode:
            return {change.feature: _NOT_SUPPORTED for change in event.changes}
        levels = dict(paths.decode_features(node.data).levels)
        results = {change.feature: self._check(change, levels) for change in event.changes}
        changed = {each.feature: each.level for each in event.changes if not results[each.feature].error_code}
        if changed and not event.validate_only:
            data = paths.encode_features(EMPTY._replace(levels=levels | changed))
            await store.multi([SetData(paths.FEATURE_LEVELS, data, node.stat.version)])
        return results

    def _check(self, change: FeatureChange, levels: Mapping[str, int]) -> ApiError:
        supported = self._term.settings.features.get(change.feature)
        if supported is None:
            return _NOT_SUPPORTED
        if change.level not in supported:
            return _invalid(change, f"This broker only supports versions {supported[0]}-{supported[-1]}.")
        present = levels.get(change.feature, supported[-1])
        if change.level < present and not change.is_downgrade:
            return _invalid(
                change,
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
                "downgrade.",
            )
        if change.level > present and change.is_downgrade:
            return _invalid(change, "Can't downgrade to a newer version.")
        return ApiError()


_NOT_SUPPORTED = ApiError(
    ErrorCode.INVALID_REQUEST,
    "Could not apply finalized feature update because the provided feature is not supported.",
)


def _invalid(change: FeatureChange, why: str) -> ApiError:
    text = f"Invalid update version {change.level} for feature {change.feature}. {why}"
    return ApiError(ErrorCode.INVALID_UPDATE_VERSION, text)
