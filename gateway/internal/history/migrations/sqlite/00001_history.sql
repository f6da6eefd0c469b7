-- +goose Up
CREATE TABLE events (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    id         VARCHAR(255) NOT NULL,
    source     VARCHAR(255) NOT NULL,
    type       VARCHAR(255) NOT NULL,
    subject    VARCHAR(1024) NOT NULL,
    time       BIGINT NOT NULL,
    kind       VARCHAR(63) NOT NULL,
    namespace  VARCHAR(63) NOT NULL,
    name       VARCHAR(253) NOT NULL,
    uid        VARCHAR(63) NOT NULL,
    cluster    VARCHAR(63) NOT NULL,
    cause      VARCHAR(255) NOT NULL,
    data       TEXT NOT NULL
);
CREATE UNIQUE INDEX events_identity ON events (id, source);
CREATE INDEX events_time ON events (time);
CREATE INDEX events_cause ON events (cause);
CREATE INDEX events_object ON events (namespace, name);
CREATE INDEX events_cluster ON events (namespace, cluster);

CREATE TABLE known (
    id         VARCHAR(255) PRIMARY KEY,
    kind       VARCHAR(63) NOT NULL,
    namespace  VARCHAR(63) NOT NULL,
    name       VARCHAR(253) NOT NULL,
    version    BIGINT NOT NULL,
    document   TEXT NOT NULL
);
CREATE INDEX known_name ON known (kind, namespace, name);

CREATE TABLE deliveries (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    endpoint   VARCHAR(255) NOT NULL,
    event_id   VARCHAR(255) NOT NULL,
    type       VARCHAR(255) NOT NULL,
    body       TEXT NOT NULL,
    attempts   INTEGER NOT NULL,
    due        BIGINT NOT NULL,
    error      VARCHAR(1024) NOT NULL,
    created    BIGINT NOT NULL
);
CREATE INDEX deliveries_due ON deliveries (endpoint, due);

CREATE TABLE dead_letters (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    identity    VARCHAR(64) NOT NULL,
    id          VARCHAR(255) NOT NULL,
    source      VARCHAR(255) NOT NULL,
    destination VARCHAR(1024) NOT NULL,
    type        VARCHAR(255) NOT NULL,
    subject     VARCHAR(1024) NOT NULL,
    namespace   VARCHAR(63) NOT NULL,
    name        VARCHAR(253) NOT NULL,
    code        INTEGER NOT NULL,
    error       VARCHAR(2048) NOT NULL,
    time        BIGINT NOT NULL,
    data        TEXT NOT NULL
);
CREATE UNIQUE INDEX dead_letters_identity ON dead_letters (identity);
CREATE INDEX dead_letters_time ON dead_letters (time);

CREATE TABLE marks (
    name  VARCHAR(255) PRIMARY KEY,
    time  BIGINT NOT NULL
);

-- +goose Down
DROP TABLE marks;
DROP TABLE dead_letters;
DROP TABLE deliveries;
DROP TABLE known;
DROP TABLE events;
