CREATE TABLE "Book_Mark" (
	"Realm" text collate "C" NOT NULL,
	"Entity" text collate "C" NOT NULL,
	"Field" text collate "C" NOT NULL,
	"Value" text collate "C" NOT NULL,
	"Holder" text collate "C" NOT NULL,
	"Process" text collate "C" NOT NULL,
	"TransactionID" text collate "C" NOT NULL,
	"ReplayID" integer NOT NULL,
	"StepName" text collate "C" NOT NULL,
	"EntityID" text collate "C",
	"ReservedAt" timestamp with time zone NOT NULL,
	"SentAt" timestamp with time zone NOT NULL,
	CONSTRAINT "Book_Mark_Realm_Entity_Field_Value_pk" PRIMARY KEY("Realm","Entity","Field","Value")
);
--> statement-breakpoint
CREATE INDEX "Book_Mark_sent" ON "Book_Mark" USING btree ("SentAt");