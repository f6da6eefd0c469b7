-- +goose Up
-- MySQL commits each statement by itself, so each one has to run again after an interruption.
CREATE TABLE IF NOT EXISTS events (
    seq        BIGINT AUTO_INCREMENT PRIMARY KEY,
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
    data       MEDIUMTEXT NOT NULL,
    UNIQUE INDEX events_identity (id, source),
    INDEX events_time (time),
    INDEX events_cause (cause),
    INDEX events_object (namespace, name),
    INDEX events_cluster (namespace, cluster)
) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS known (
    id         VARCHAR(255) PRIMARY KEY,
    kind       VARCHAR(63) NOT NULL,
    namespace  VARCHAR(63) NOT NULL,
    name       VARCHAR(253) NOT NULL,
    version    BIGINT NOT NULL,
    document   MEDIUMTEXT NOT NULL,
    INDEX known_name (kind, namespace, name)
) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS deliveries (
    seq        BIGINT AUTO_INCREMENT PRIMARY KEY,
    endpoint   VARCHAR(255) NOT NULL,
    event_id   VARCHAR(255) NOT NULL,
    type       VARCHAR(255) NOT NULL,
    body       MEDIUMTEXT NOT NULL,
    attempts   INTEGER NOT NULL,
    due        BIGINT NOT NULL,
    error      VARCHAR(1024) NOT NULL,
    created    BIGINT NOT NULL,
    INDEX deliveries_due (endpoint, due)
) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS dead_letters (
    seq         BIGINT AUTO_INCREMENT PRIMARY KEY,
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
    data        MEDIUMTEXT NOT NULL,
    UNIQUE INDEX dead_letters_identity (identity),
    INDEX dead_letters_time (time)
) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS marks (
    name  VARCHAR(255) PRIMARY KEY,
    time  BIGINT NOT NULL
) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS marks;
DROP TABLE IF EXISTS dead_letters;
DROP TABLE IF EXISTS deliveries;
DROP TABLE IF EXISTS known;
DROP TABLE IF EXISTS events;
