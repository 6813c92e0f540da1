"""The composition root: builds one broker from its configuration, runs it until it is told to stop, and takes it apart.

Owns: the order of start and stop. Must not know: how any part works.

Start: listening sockets (an address in use stops the start before any file is touched), log directories, metadata
store, identity, partition logs, registration, controller; only then are connections accepted, so that the first
answer is a good one. Stop: no new connections, controller and groups resign, logs are flushed and marked clean, the
store closes."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import uvloop
from controller.controller import Controller
from storage.log_manager import LogManager

from broker.clock import Clock, SystemClock
from broker.cluster_link import LocalChannels
from broker.dispatch import RequestDispatcher
from broker.groups.coordinator import GroupCoordinator
from broker.housekeeping import Housekeeping
from broker.loop_timer import LoopTimer
from broker.metadata_cache import MetadataCache
from broker.network.listener import Listener, ListenError, ListenerSettings
from broker.offsets_log import PartitionOffsetsLog
from broker.producer_ids import ProducerIds
from broker.replica.fetch_sessions import FetchSessionCache
from broker.replica.manager import ReplicaManager
from broker.routes import TABLE
from broker.services import Services
from broker.topic_configs import TopicConfigs
from broker.topics import TopicAdministration
from config import broker_properties as properties
from config.broker import BrokerConfig
from controller.sqlite_store import SqliteStore
from protocol.api import APIS

logger = logging.getLogger("kafka.server.KafkaServer")
